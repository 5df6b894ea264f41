/** Colours of a status on a terminal; a file or a pipe gets plain text. */
const COLOURS = { ok: '\u001B[32m', fail: '\u001B[1;31m', warn: '\u001B[33m' };
const RESET = '\u001B[0m';

/**
 * @param {readonly import('./doctor.mjs').Row[]} rows
 * @param {{ colour: boolean }} options
 * @returns {string} one line per row, its remedy below it
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
 * @returns {string} names of the rows with warnings and with failures, or `ready`
 */
export function summarize(rows) {
  /** @param {string} wanted */
  const names = (wanted) => rows.filter(({ status }) => status === wanted).map(({ name }) => name);
  const [failed, warned] = [names('fail'), names('warn')];
  const lines = [
    ...(warned.length > 0 ? [`${warned.length} to review: ${warned.join(', ')}`] : []),
    failed.length > 0 ? `${failed.length} to fix: ${failed.join(', ')}` : 'ready',
  ];
  return `\n${lines.join('\n')}\n`;
}
