export const drawChart = (r) => JSON.stringify(r);
