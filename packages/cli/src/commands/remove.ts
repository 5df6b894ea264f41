import type { Command } from 'commander';
import type { DestroyResult } from '../../../sdk/src/index.ts';
import { describeFailure, EXIT } from '../output/failure.ts';
import { formatSeconds, formatUsd } from '../output/quantities.ts';
import { action, addCommand } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';

const SECOND_MS = 1000;

export function addRemove(program: Command): void {
  addCommand(program, {
    syntax: 'rm <sandbox...>',
    alias: 'destroy',
    summary: 'destroys sandboxes and everything in them',
    details: 'Destroys all that it can, and exits with 1 if one could not be destroyed.',
    examples: ['coppice rm run0123', 'coppice rm $(coppice ls -q --label job=nightly)'],
  }).action(
    action(async ({ operands, out, connect }) => {
      const client = connect();
      let code = 0;
      const results: (DestroyResult & { id: string })[] = [];
      for (const given of operands) {
        try {
          const sandbox = await findSandbox(client, given);
          const result = await sandbox.destroy();
          results.push({ id: sandbox.id, ...result });
          if (!out.isJson) await out.result(sandbox.id, describe(sandbox.id, result));
        } catch (error) {
          out.note(`coppice: ${given}: ${describeFailure(error)}`);
          code = EXIT.failed;
        }
      }
      if (out.isJson) await out.json(results);
      return code;
    }),
  );
}

function describe(id: string, { uptimeMs, costCents }: DestroyResult): string {
  return `${id} destroyed after ${formatSeconds(uptimeMs / SECOND_MS)}, ${formatUsd(costCents)}`;
}
