/** Runs a command to its end and collects its output. */
import type { ExecRequest, ExecResponse } from '@coppice/contract';
import type { RunnerClient } from '../../placement/runner-client.ts';
import type { Logger } from 'pino';
import { AuditedCommand } from '../../streams/audited-command.ts';
import type { AuditLog } from '../../audit/audit-log.ts';
import type { HeldOutput } from './output-budget.ts';

export interface RunCommand {
  runner: RunnerClient;
  audit: AuditLog;
  log: Pick<Logger, 'warn'>;
  id: string;
  request: ExecRequest;
  output: HeldOutput;
  /** Called when the command has started: from here on its end is the only answer. */
  onStarted: () => void;
}

export async function runCommand(options: RunCommand): Promise<ExecResponse> {
  const { stdout, stderr } = options.output;
  const command = await AuditedCommand.start({ ...options, isInteractive: false, isAwaited: true });
  options.onStarted();
  let exit = { exit_code: 0, timed_out: false };
  for await (const output of command) {
    if (output.type === 'exit') exit = output;
    else (output.type === 'stdout' ? stdout : stderr).push(output.data);
  }
  return {
    exit_code: exit.exit_code,
    stdout: stdout.text,
    stderr: stderr.text,
    timed_out: exit.timed_out,
    truncated: stdout.isTruncated || stderr.isTruncated,
  };
}
