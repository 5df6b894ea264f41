import type { Command } from 'commander';
import { action, addCommand, first } from '../calls/command-call.ts';
import { findSandbox } from '../calls/find-sandbox.ts';
import { parseOperand, parseSeconds, whole } from '../calls/parse-values.ts';

const MAX_PORT = 65_535;

export function addUrl(program: Command): void {
  addCommand(program, {
    syntax: 'url <sandbox> <port>',
    summary: 'prints the address of a port of a sandbox',
    details:
      'Requests to the address need the API key as bearer token. With --preview it opens in a browser without a key: anyone ' +
      'who has the link reaches the port until it expires.',
    examples: ['coppice url run0123 3000 --path /health', 'open $(coppice url run0123 3000 --preview)'],
  })
    .option('--path <path>', 'path and query', '')
    .option('--preview', 'creates a link that needs no key')
    .option('--expires-in <time>', 'time until the link expires, 1m to 30d (default: 1h)', parseSeconds)
    .action(
      action<{ path: string; preview?: boolean; expiresIn?: number }>(async (call) => {
        const { path, preview, expiresIn } = call.options;
        const port = parseOperand('port', call.operands[1] ?? '', whole(1, MAX_PORT));
        const sandbox = await findSandbox(call.connect(), first(call));
        if (preview !== true) {
          const url = sandbox.url(port, path);
          return call.out.result({ url }, url);
        }
        const link = await sandbox.preview(port, { expiresIn });
        return call.out.result(link, link.url);
      }),
    );
}
