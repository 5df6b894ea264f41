/**
 * Starts a web server in a sandbox, waits for its port, opens a preview link as a browser does, changes the page and
 * shows the change. Then it waits, so that you can open the link, until Ctrl-C destroys the sandbox.
 */
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { Coppice, type Sandbox } from '@coppice/sdk';

const PORT = 8000;
const PAGE = new URL('site/index.html', import.meta.url);
const START_TIMEOUT_MS = 60_000;
const ANSWER_TIMEOUT_MS = 30_000;
/** Of the service, when nothing listens in the sandbox. */
const BAD_GATEWAY = 502;
const INTERRUPTED = 130;

interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: string;
}

const interrupt = new AbortController();
const { signal } = interrupt;
// A second Ctrl-C ends the program at once. Its sandbox then ends by its timeout.
for (const name of ['SIGINT', 'SIGTERM']) process.once(name, () => interrupt.abort());
try {
  await run();
} catch (error) {
  console.error(`web-preview: ${signal.aborted ? 'interrupted' : String(error)}`);
  process.exitCode = signal.aborted ? INTERRUPTED : 1;
}

async function run(): Promise<void> {
  // Without the signal: if the call were interrupted, nothing would know the sandbox that it makes.
  await using sandbox = await new Coppice().sandboxes.create({
    image: 'coppice/base:1',
    memMiB: 256,
    timeout: 600,
    labels: { example: 'web-preview' },
  });
  signal.throwIfAborted();
  const page = await readFile(PAGE, 'utf8');
  await startServer(sandbox, page);

  const preview = await sandbox.preview(PORT, { expiresIn: 3600, signal });
  console.log(`link: ${preview.url}`);
  const site = await openLink(preview.url);
  console.log(`page: ${readHeading(await waitForPage(site))}`);

  await sandbox.upload('/workspace/site/index.html', page.replace('Hello from', 'Changed in'), { signal });
  console.log(`page: ${readHeading(await site.get('/'))}`);

  console.log('The link works in your browser until you press Ctrl-C.');
  await keepAlive(sandbox);
}

/** Starts the server as a command that outlives its connection. */
async function startServer(sandbox: Sandbox, page: string): Promise<void> {
  await sandbox.upload('/workspace/site/index.html', page, { signal });
  const command = `python3 -m http.server ${PORT} --directory /workspace/site`;
  await sandbox.commands.start(command, { tag: 'server', signal });
}

/** A preview as a browser has it: with the cookie that the link has set. */
interface Site {
  get: (path: string) => Promise<Answer>;
}

/** Opens the link. It answers with a cookie and a redirect to the first page. */
async function openLink(link: string): Promise<Site> {
  const { status, headers } = await get(link);
  const cookie = headers['set-cookie']?.[0]?.split(';', 1)[0];
  if (cookie === undefined) throw new Error(`the preview link was answered with ${status}`);
  return { get: (path) => get(new URL(path, link).href, { cookie }) };
}

/** Waits until the server in the sandbox listens: a moment after its start it may not. */
async function waitForPage(site: Site): Promise<Answer> {
  const endsAtMs = Date.now() + START_TIMEOUT_MS;
  for (;;) {
    const answer = await site.get('/');
    if (answer.status !== BAD_GATEWAY) return answer;
    if (Date.now() > endsAtMs) throw new Error(`no server listens on port ${PORT} of the sandbox`);
    await sleep(200, undefined, { signal });
  }
}

/** Like `fetch`, but it follows no redirect, and names below `localhost` are this machine, as in every browser. */
async function get(link: string, headers: http.OutgoingHttpHeaders = {}): Promise<Answer> {
  const { protocol, host, hostname, port, pathname, search } = new URL(link);
  const client = protocol === 'https:' ? https : http;
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    const options = {
      hostname: hostname.endsWith('.localhost') ? '127.0.0.1' : hostname,
      port,
      path: pathname + search,
      headers: { host, ...headers },
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]),
    };
    client.get(options, resolve).once('error', reject);
  });
  return { status: response.statusCode ?? 0, headers: response.headers, body: await text(response) };
}

function readHeading({ status, body }: Answer): string {
  return `${status} ${/<h1>(.*)<\/h1>/u.exec(body)?.[1] ?? 'without a heading'}`;
}

/** Waits for Ctrl-C. A sandbox without visitors ends by its timeout. */
async function keepAlive(sandbox: Sandbox): Promise<void> {
  while (!signal.aborted) {
    const { status } = await sandbox.info();
    if (status !== 'running') throw new Error(`the sandbox is ${status}`);
    await sleep(5000, undefined, { signal }).catch(() => undefined);
  }
}
