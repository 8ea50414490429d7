// @ts-check
export function drawCharts(/** @type {any} */ _json, /** @type {string} */ _folder) {}
