/** Bold red and green where a person looks at it; bytes alone in a file or a pipe. */
const COLOURS = { ok: '\u001B[32m', fail: '\u001B[1;31m', warn: '\u001B[33m' };
const RESET = '\u001B[0m';

/**
 * @param {readonly import('./doctor.mjs').Row[]} rows
 * @param {{ colour: boolean }} options
 * @returns {string} one line a row, remedies below it
 */
export function formatRows(rows, options) {
  const nameWidth = Math.max(0, ...rows.map(({ name }) => name.length));
  const statusWidth = Math.max(...Object.keys(COLOURS).map((status) => status.length));
  return rows
    .map(({ name, status, detail, remedy }) => {
      const padded = status.padEnd(statusWidth);
      const shown = options.colour ? `${COLOURS[status]}${padded}${RESET}` : padded;
      const indent = ' '.repeat(statusWidth + nameWidth + 4);
      return `${shown}  ${name.padEnd(nameWidth)}  ${detail}\n${remedy === undefined ? '' : `${indent}-> ${remedy}\n`}`;
    })
    .join('');
}

/**
 * @param {readonly import('./doctor.mjs').Row[]} rows
 * @returns {string} what it comes to
 */
export function summarize(rows) {
  /** @param {string} wanted */
  const names = (wanted) => rows.filter(({ status }) => status === wanted).map(({ name }) => name);
  const [failed, warned] = [names('fail'), names('warn')];
  const lines = [
    ...(warned.length > 0 ? [`${warned.length} to know of: ${warned.join(', ')}`] : []),
    failed.length > 0 ? `${failed.length} to be mended: ${failed.join(', ')}` : 'ready',
  ];
  return `\n${lines.join('\n')}\n`;
}
