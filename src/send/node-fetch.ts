// Whichever undici is loaded first, that of Node or ours, makes the dispatcher through which the whole process fetches.
// Ours refuses some of what Node's fetch hands it (see intake/length.ts), and importing a library should change nothing.
// Reading this property loads that of Node.
void globalThis.Headers;
