import type { Command } from 'commander';
import type { Sandbox } from '../../../sdk/src/index.ts';
import { formatAge, formatLabels, formatMiB, formatUntil } from '../output/quantities.ts';
import type { Colour, Column } from '../output/table.ts';
import { action, addCommand } from '../calls/command-call.ts';
import { collect, parsePair, whole } from '../calls/parse-values.ts';

interface ListOptions {
  status?: string[];
  name?: string;
  label?: Record<string, string>;
  limit?: number;
  quiet?: boolean;
}

const COLOURS: Readonly<Record<string, Colour>> = { running: 'green', hibernated: 'yellow', failed: 'red' };

/** Removes what every image reference has in common: the registry of Docker, and the digest. */
export function shortenImage(image: string): string {
  return image.replace(/@sha256:[0-9a-f]{64}$/u, '').replace(/^docker\.io\/(?:library\/)?/u, '');
}

const COLUMNS: readonly Column<Sandbox>[] = [
  { head: 'ID', text: ({ id }) => id },
  { head: 'NAME', text: ({ name }) => name ?? '' },
  {
    head: 'STATUS',
    text: ({ status, record }) => record.operation ?? status,
    colour: ({ status }) => COLOURS[status],
  },
  { head: 'IMAGE', text: ({ record }) => shortenImage(record.image) },
  { head: 'CPUS', text: ({ record }) => String(record.vcpus) },
  { head: 'MEMORY', text: ({ record }) => formatMiB(record.memMiB) },
  { head: 'AGE', text: ({ record }) => formatAge(record.createdAt) },
  { head: 'EXPIRES IN', text: ({ record }) => formatUntil(record.expiresAt) },
  { head: 'LABELS', text: ({ record }) => formatLabels(record.labels) },
];

export function addList(program: Command): void {
  addCommand(program, {
    syntax: 'ls',
    alias: 'list',
    summary: 'lists sandboxes that have not ended',
    examples: [
      'coppice ls',
      'coppice ls --status hibernated --label job=nightly',
      'coppice rm $(coppice ls -q)',
    ],
  })
    .option('--status <status>', 'only those in this state; may be repeated', collect)
    .option('--name <text>', 'only the one with this name')
    .option('--label <key=value>', 'only those with this label; may be repeated', parsePair)
    .option('--limit <count>', 'at most this many', whole(1))
    .option('-q, --quiet', 'prints only the ids')
    .action(
      action<ListOptions>(async ({ options, out, connect }) => {
        const { status, name, label, limit, quiet } = options;
        const found = await connect().sandboxes.list({ status, name, labels: label, limit });
        if (out.isJson) await out.json(found.map(({ record }) => record));
        else if (quiet === true) for (const { id } of found) await out.result(id, id);
        else await out.list(found, COLUMNS);
      }),
    );
}
