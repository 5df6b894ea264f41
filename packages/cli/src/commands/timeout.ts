import type { Command } from 'commander';
import { formatSeconds } from '../output/quantities.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';
import { parseOperand, parseSeconds } from '../calls/parse-values.ts';

export function addTimeout(program: Command): void {
  addCommand(program, {
    syntax: 'timeout <sandbox> <time>',
    summary: 'sets the idle timeout of a sandbox and restarts its timer; 0: never',
    examples: ['coppice timeout run0123 2h'],
  }).action(
    action(async (call) => {
      const seconds = parseOperand('time', call.operands[1] ?? '', parseSeconds);
      const record = await (await findSandbox(call.connect(), first(call))).setTimeout(seconds);
      const time =
        record.timeout === 0 ? 'never expires' : `expires after ${formatSeconds(record.timeout)} without use`;
      await call.out.result(record, `${record.id} ${time}`);
    }),
  );
}
