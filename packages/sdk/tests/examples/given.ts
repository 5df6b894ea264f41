/** Makes the things that an example uses without making them itself, and the state of the service that it assumes. */
import { writeFile } from 'node:fs/promises';
import {
  Coppice,
  type Command,
  type Preview,
  type Sandbox,
  type Shell,
  type SnapshotInfo,
  type SpawnedCommand,
  type Terminal,
} from '../../src/index.ts';

/** The service and the key that examples use, and what they write for both. */
export interface Place {
  baseUrl: string;
  apiKey: string;
  /** Image in place of those of the examples. */
  image: string;
  /** Whether examples that do not change the sandbox as a whole use one sandbox, which is faster on virtual machines. */
  sharesSandbox?: boolean;
}

export interface Given {
  client: Coppice;
  sandbox: Sandbox;
  sandboxId: string;
  snapshot: SnapshotInfo;
  snapshotId: string;
  preview: Preview;
  /** A command of `commands.start()`. */
  detached: Command;
  detachedId: string;
  spawned: SpawnedCommand;
  shell: Shell;
  terminal: Terminal;
  hookId: string;
  buildId: string;
  contextId: string;
  place: Place;
}

const EMPTY_TAR = new Uint8Array(1024);

const FILES = [
  '/workspace/out.csv',
  '/workspace/report.tmp',
  '/workspace/run.sh',
  '/workspace/a',
  '/workspace/build/a',
  '/workspace/plot.png',
  '/workspace/big.tar',
  '/workspace/dist/index.html',
];

/** Code that needs a sandbox of its own. */
const CHANGES_SANDBOX =
  /create|destroy|hibernate|resume|rollback|restore|fork|snapshot|update|setTimeout|follow: true|using sandbox|list\(/iu;
let shared: Sandbox | undefined;

async function takeSandbox(client: Coppice, place: Place, code: string): Promise<Sandbox> {
  const isOwn = place.sharesSandbox !== true || CHANGES_SANDBOX.test(code);
  if (!isOwn && shared !== undefined) return shared;
  await clear(client);
  const sandbox = await client.sandboxes.create({ image: place.image, memMiB: 256 });
  shared = isOwn ? undefined : sandbox;
  return sandbox;
}

/** Makes what the code of an example uses. Other fields are not set: an example that reads one fails. */
export async function prepare(place: Place, code: string): Promise<Given> {
  const client = new Coppice({ baseUrl: place.baseUrl, apiKey: place.apiKey });
  const sandbox = await takeSandbox(client, place, code);
  await writeFile('data.qcow2', 'an image');
  await writeFile('context.tar', EMPTY_TAR);
  const uses = (pattern: RegExp): boolean => pattern.test(code);
  if (uses(/'data'/u) && !uses(/\b(?:createDisk|importDisk)\(/u)) {
    await client.createDisk({ name: 'data', sizeGb: 1 });
    if (uses(/'clean'/u) && !uses(/snapshotDisk\(/u)) await client.snapshotDisk('data', { name: 'clean' });
  }
  if (uses(/'openai-production'/u) && !uses(/secrets\.set/u))
    await client.secrets.set('openai-production', 'sk-a');
  const hook = uses(/\bhook(?:Id)?\b/u)
    ? await client.webhooks.create({ url: 'https://example.com/' })
    : undefined;
  if (uses(/registries\.delete/u)) await client.registries.set('ghcr.io', { username: 'a', password: 'b' });
  if (uses(/audit\.ndjson/u))
    await writeFile('audit.ndjson', await fetchLog(place, `/v1/runs/${sandbox.id}/audit`));
  if (uses(/organization\.ndjson/u))
    await writeFile('organization.ndjson', await fetchLog(place, '/v1/organization/audit'));
  if (uses(/\/workspace/u))
    await Promise.all(
      FILES.map((file) => sandbox.upload(file, file.endsWith('.tar') ? 'x'.repeat(1_100_000) : 'text')),
    );
  return {
    client,
    sandbox,
    sandboxId: sandbox.id,
    ...(hook === undefined ? {} : { hookId: hook.id }),
    ...(await prepareBuild(client, place, uses)),
    place,
    ...(await prepareParts(sandbox, uses)),
  } as Given;
}

async function prepareBuild(
  client: Coppice,
  { image: from }: Place,
  uses: (pattern: RegExp) => boolean,
): Promise<Partial<Given>> {
  const build: Partial<Given> = {};
  if (uses(/buildId|images\.delete/u))
    build.buildId = (await client.builds.run({ from, name: 'app:1', steps: [] })).id;
  if (uses(/contextId/u)) build.contextId = await client.builds.uploadContext(new Blob([EMPTY_TAR]));
  return build;
}

async function prepareParts(sandbox: Sandbox, uses: (pattern: RegExp) => boolean): Promise<Partial<Given>> {
  const parts: Partial<Given> = {};
  if (uses(/\bsnapshot\b|snapshotId/u)) parts.snapshot = await sandbox.snapshot();
  if (parts.snapshot !== undefined) parts.snapshotId = parts.snapshot.id;
  if (uses(/\bpreview\.id/u)) parts.preview = await sandbox.preview(3000);
  if (uses(/\bdetached/u))
    parts.detached = await (uses(/\.write\(/u)
      ? sandbox.commands.start('cat', { stdin: true })
      : sandbox.commands.start('sleep 2'));
  if (parts.detached !== undefined) parts.detachedId = parts.detached.id;
  if (uses(/\bspawned\b/u)) parts.spawned = await sandbox.spawn(uses(/\.wait\(/u) ? 'true' : 'cat');
  if (uses(/\bshell\./u) && !uses(/\.shell\(/u)) parts.shell = await sandbox.shell();
  if (uses(/\bterminal\./u) && !uses(/\.terminal\(/u))
    parts.terminal = await sandbox.terminal(uses(/\.wait\(/u) ? { command: 'true' } : {});
  if (uses(/\.resume\(/u) && !uses(/\.hibernate\(/u)) await sandbox.hibernate();
  return parts;
}

async function fetchLog({ baseUrl, apiKey }: Place, path: string): Promise<string> {
  const headers = { authorization: `Bearer ${apiKey}` };
  return (await fetch(`${baseUrl}${path}`, { headers })).text();
}

async function clear(client: Coppice): Promise<void> {
  const sandboxes = await client.sandboxes.list();
  await Promise.all(sandboxes.map((sandbox) => sandbox[Symbol.asyncDispose]()));
  for (const { id } of await client.webhooks.list()) await client.webhooks.delete(id);
  for (const { id } of await client.snapshots.list()) await client.snapshots.delete(id);
  // Forks, which are newer, come first.
  for (const { name } of await client.listDisks()) await client.deleteDisk(name);
}
