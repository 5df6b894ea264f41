import { parseArgs } from 'node:util';
import { inspectMachine } from './machine.mjs';
import { formatRows } from './report-table.mjs';

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {'ok' | 'missing' | 'note'} status  a note neither fails nor needs anything to be done
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
  const missing = rows.filter(({ status }) => status === 'missing');
  if (options.json) {
    process.stdout.write(`${JSON.stringify({ ok: missing.length === 0, checks: rows }, null, 2)}\n`);
  } else {
    process.stdout.write(
      formatRows(rows, { colour: process.stdout.isTTY && process.env['NO_COLOR'] === undefined }),
    );
    process.stdout.write(
      missing.length === 0
        ? '\nready\n'
        : `\n${missing.length} missing: ${missing.map(({ name }) => name).join(', ')}\n`,
    );
  }
  return missing.length === 0 ? 0 : 1;
}

/** @param {string[]} args */
function parseOptions(args) {
  try {
    return parseArgs({ args, options: { json: { type: 'boolean', default: false } } }).values;
  } catch (error) {
    process.stderr.write(`coppice doctor: ${error instanceof Error ? error.message : String(error)}\n`);
    return undefined;
  }
}
