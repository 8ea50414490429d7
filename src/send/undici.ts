// The only place that imports undici, for the sake of what has to be loaded before it.
import "./node-fetch.js";

export { Agent, errors, getGlobalDispatcher, request, util } from "undici";
