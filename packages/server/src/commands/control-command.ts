/** `coppice admin control`, on the server itself. packages/cli starts it in the Node.js of the service. */
import { parseArgs } from 'node:util';
import { runCommand, UsageError } from './command-line.ts';
import { withDatabase } from './control-database.ts';
import { formatTable } from './format-table.ts';
import { listLiveControls, type ListedControl } from '../control/ownership/live-controls.ts';

const HEADS = ['ID', 'VERSION', 'ADDRESS', 'LEADS', 'RUNNERS', 'STARTED'];

async function list(args: string[]): Promise<string> {
  const { values } = parseArgs({ args, options: { json: { type: 'boolean' } } });
  return withDatabase('control-command', async (db) => {
    const controls = await listLiveControls(db);
    if (values.json === true) return JSON.stringify(controls.map(toJson), undefined, 2);
    return formatTable(HEADS, controls.map(toRow));
  });
}

function toJson({ id, version, address, startedAt, isLeading, runners }: ListedControl): object {
  return { id, version, address, leading: isLeading, runners, started_at: new Date(startedAt).toISOString() };
}

function toRow({ id, version, address, startedAt, isLeading, runners }: ListedControl): string[] {
  const started = new Date(startedAt).toISOString();
  return [id, version, address ?? '-', isLeading ? 'yes' : 'no', String(runners), started];
}

async function main(): Promise<void> {
  const [verb, ...args] = process.argv.slice(2);
  if (verb !== 'list') throw new UsageError(`unknown command "${verb ?? ''}": expected list`);
  process.stdout.write(`${await list(args)}\n`);
}

await runCommand('coppice admin control', main);
