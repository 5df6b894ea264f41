import { parseArgs } from 'node:util';
import { inspectMachine } from './machine.mjs';
import { formatRows, summarize } from './report-table.mjs';

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {'ok' | 'warn' | 'fail'} status  with a warning the service can still run sandboxes
 * @property {string} detail    what was found
 * @property {string} [remedy]
 */

/**
 * @param {string[]} args
 * @returns {Promise<number>} exit code
 */
export async function doctor(args) {
  const options = parseOptions(args);
  if (options === undefined) return 2;
  const rows = await inspectMachine();
  const ok = rows.every(({ status }) => status !== 'fail');
  if (options.json) process.stdout.write(`${JSON.stringify({ ok, checks: rows }, null, 2)}\n`);
  else {
    const colour = process.stdout.isTTY && process.env['NO_COLOR'] === undefined;
    process.stdout.write(formatRows(rows, { colour }) + summarize(rows));
  }
  return ok ? 0 : 1;
}

/** @param {string[]} args */
function parseOptions(args) {
  try {
    return parseArgs({ args, options: { json: { type: 'boolean', default: false } } }).values;
  } catch (error) {
    process.stderr.write(`coppice admin doctor: ${error instanceof Error ? error.message : String(error)}\n`);
    return undefined;
  }
}
