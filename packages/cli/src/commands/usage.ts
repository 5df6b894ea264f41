import type { Command } from 'commander';
import { formatUsd } from '../output/quantities.ts';
import { action, addCommand } from '../calls/command-call.ts';

export function addUsage(program: Command): void {
  addCommand(program, {
    syntax: 'usage',
    summary: 'shows what your organization has used, and its cost',
    examples: ['coppice usage', 'coppice usage --json | jq .totalCostCents'],
  }).action(
    action(async ({ out, connect }) => {
      const usage = await connect().usage();
      await out.record(usage, [
        ['active sandboxes', usage.activeSandboxes],
        ['ended sandboxes', usage.historySandboxes],
        ['cost of active sandboxes', formatUsd(usage.activeCostCents)],
        ['cost of ended sandboxes', formatUsd(usage.historyCostCents)],
        ['cost of disks', formatUsd(usage.diskCostCents)],
        ['total cost', formatUsd(usage.totalCostCents)],
        ['credit left', usage.creditLeftCents === null ? null : formatUsd(usage.creditLeftCents)],
        ['as of', usage.asOf],
      ]);
    }),
  );
}
