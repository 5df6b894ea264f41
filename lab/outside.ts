/**
 * Simulates the internet for the guests of the emulated host, and runs on that host. It has a network namespace with
 * the hosts of the built-in credential services and a resolver that knows only these. Its certificate authority is
 * added to the system's, where the service looks. 127.0.0.1:8099 answers with the requests that arrived.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { EgressInternet } from '../e2e/fixtures/internet/egress-internet.ts';
import { stretchDeadlines } from '../packages/server/src/lib/waiting/deadline.ts';

const AUTHORITY = '/usr/local/share/ca-certificates/lab-outside.crt';
const PORT = 8099;
const TOOL_TIMEOUT_MS = 5 * 60_000;

stretchDeadlines(Number(process.argv[2] ?? 1));
const internet = await EgressInternet.start();
copyFileSync(internet.caPath, AUTHORITY);
execFileSync('update-ca-certificates', { timeout: TOOL_TIMEOUT_MS, stdio: 'ignore' });
createServer((_, response) => {
  internet.seen().then(
    (seen) => response.end(JSON.stringify(seen)),
    (error: unknown) => response.writeHead(500).end(String(error)),
  );
}).listen(PORT, '127.0.0.1');
