#!/usr/bin/env node
/**
 * The command `coppice-mcp`: an MCP server on standard input and output. Only the protocol is written to standard output;
 * messages for people go to standard error, and contain no secrets.
 */
import { readFileSync } from 'node:fs';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { Coppice } from '../../sdk/src/index.ts';
import { CreatedSandboxes } from './created-sandboxes.ts';
import { buildMcpServer } from './mcp-server.ts';
import { readOptions, type Options } from './read-options.ts';

const USAGE = `usage: coppice-mcp [--key-file <file>] [--destroy-on-exit]

Serves the sandboxes of a Coppice service to an MCP client, on standard input and output.

  --key-file <file>   reads the API key from a file that only you can read, in place of SANDBOX_API_KEY
  --destroy-on-exit   destroys the sandboxes that this session created when it ends; without it, an idle sandbox
                      ends by its own timeout
  --version           prints the version

Environment: SANDBOX_API_KEY, SANDBOX_BASE_URL (default http://127.0.0.1:8080), SANDBOX_ALLOW_PLAIN_HTTP
`;
/** Time to destroy the sandboxes of the session. */
const CLEAN_UP_MS = 60_000;
/** Longest time for a create in progress. The client gives it up after 290 s. */
const CREATE_MS = 300_000;
/** Time from the end of the session to that of the process, besides the times above. */
const EXIT_MS = 12_000;

main();

function main(): void {
  try {
    const options = readOptions(process.argv.slice(2));
    const version = readVersion();
    if (options.show !== undefined) process.stdout.write(options.show === 'version' ? `${version}\n` : USAGE);
    else serve(options, version);
  } catch (error) {
    report(`${describe(error)}\n\n${USAGE}`);
    process.exitCode = 2;
  }
}

/** The package.json is beside both `src` and `dist`. */
function readVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

/** Serves until standard input ends, or a signal arrives. Then cancels the calls in progress, and cleans up. */
function serve({ apiKey, destroysOnExit }: Options, version: string): void {
  const client = new Coppice({ apiKey });
  const creations = new CreatedSandboxes(report);
  const server = serveStdio(() => buildMcpServer({ client, creations }, version), {
    onerror: (error) => report(describe(error)),
  });
  const end = async (): Promise<void> => {
    await within(EXIT_MS, server.close());
    if (creations.pending > 0)
      report(`creates in progress: ${creations.pending}; waits for them, to destroy their sandboxes`);
    const left = await creations.settle(CREATE_MS);
    if (left > 0) report(`creates still in progress: ${left}; their sandboxes may stay: list them`);
    const failed = destroysOnExit ? await creations.destroyAll(CLEAN_UP_MS) : [];
    for (const id of failed) report(`could not destroy ${id}; unless it has an idle timeout, it stays`);
    setTimeout(() => process.exit(1), EXIT_MS).unref();
  };
  process.stdin.once('close', () => void end());
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.stdin.destroy());
  report(`version ${version} serves ${client.baseUrl}`);
}

/** Resolves with the promise, or after `ms` without it. */
async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([promise, new Promise((resolve) => (timer = setTimeout(resolve, ms)))]);
  clearTimeout(timer);
}

function report(text: string): void {
  process.stderr.write(`coppice-mcp: ${text}\n`);
}

function describe(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, 2000);
}
