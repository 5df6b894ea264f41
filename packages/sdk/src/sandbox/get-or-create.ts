/**
 * Finds a sandbox by its name, or creates it. The service decides between concurrent callers: a name belongs to one
 * sandbox of a team, so all creates but one are refused.
 *
 *     create ──► 201: done
 *        ▲  └──► 409 already_exists ──► list by name ──► running: done
 *        │                                  │      └───► hibernated: resume, then done
 *        │                                  │      └───► in a change: wait
 *        └──────── it has ended ◄───────────┘
 *
 * The create comes first: a key may see sandboxes of other teams with the same name, but only the service knows the team
 * of the key.
 */
import type { CallOptions } from '../transport/client-options.ts';
import { Deadline } from '../transport/deadline.ts';
import { CoppiceError } from '../transport/errors.ts';
import { fetchPage } from '../transport/paged-list.ts';
import { slowTimeoutMs } from '../transport/post-once.ts';
import { labelOf, type Transport } from '../transport/transport.ts';
import { buildQuery } from '../transport/wire.ts';
import { changeState, createSandbox, fetchSandbox, sandboxPath, type CreateOptions } from './lifecycle.ts';
import { hasEnded, parseSandboxInfos, type SandboxInfo } from './sandbox-record.ts';

/** A name can be taken by something else than a live sandbox, such as the new disk of `forkFromDisk`. */
const MAX_CREATES = 5;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;

/** Operations after which the sandbox is in another state. */
const CHANGES: ReadonlySet<string | null> = new Set(['hibernating', 'resuming', 'destroying']);

/** Options of `client.sandboxes.getOrCreate()`: the name, and the settings of the sandbox if it is created. */
export interface GetOrCreateOptions extends CreateOptions {
  /** Name of the sandbox, 1–64 characters. */
  name: string;
  /**
   * Id or name of the team of the API key. Needed only if the key sees other teams' sandboxes with the same name.
   * Default: none.
   */
  team?: string | undefined;
}

/** Returns the record of a sandbox that runs. */
export async function getOrCreateSandbox(
  transport: Transport,
  options: GetOrCreateOptions,
  call: CallOptions,
): Promise<SandboxInfo> {
  const { team, ...create } = options;
  if (typeof create.name !== 'string') throw new TypeError('getOrCreate: name is required');
  const deadline = new Deadline(
    labelOf({ method: 'POST', path: '/v1/runs' }),
    slowTimeoutMs(transport),
    call.signal,
  );
  try {
    return await ensureRunning({ transport, create: { ...create, name: create.name }, team, deadline });
  } finally {
    deadline.end();
  }
}

interface Search {
  transport: Transport;
  create: CreateOptions & { name: string };
  team: string | undefined;
  deadline: Deadline;
}

async function ensureRunning(search: Search): Promise<SandboxInfo> {
  const { transport, create, deadline } = search;
  const { signal } = deadline;
  for (let count = 1; ; count += 1) {
    try {
      return await createSandbox(transport, create, { signal });
    } catch (error) {
      if (!isCode(error, 'already_exists')) throw error;
      const found = await findByName(search);
      const running = found && (await awaitRunning(transport, found, deadline));
      if (running !== undefined) return running;
      // The sandbox has ended between the two requests.
      if (count === MAX_CREATES) throw error;
    }
    await deadline.sleep(pauseMs(count));
  }
}

async function findByName({ transport, create, team, deadline }: Search): Promise<SandboxInfo | undefined> {
  const query = buildQuery({ name: create.name, team, limit: 2 });
  const request = { path: '/v1/runs', query, signal: deadline.signal };
  const { items } = await fetchPage(transport, request, parseSandboxInfos);
  if (items.length > 1) {
    const name = JSON.stringify(create.name);
    throw new CoppiceError(
      `getOrCreate: sandboxes of several teams are called ${name}; pass the team of your API key`,
      { status: 0, code: 'ambiguous_name' },
    );
  }
  return items[0];
}

/** Waits until a sandbox runs, and resumes it if it is hibernated. Resolves with undefined when it has ended. */
async function awaitRunning(
  transport: Transport,
  found: SandboxInfo,
  deadline: Deadline,
): Promise<SandboxInfo | undefined> {
  const path = sandboxPath(found.id);
  const { signal } = deadline;
  let info = found;
  for (let count = 1; !hasEnded(info); count += 1) {
    const isChanging = info.status === 'creating' || CHANGES.has(info.operation);
    if (!isChanging && info.status === 'running') return info;
    const resumed = isChanging ? undefined : await tryResume(transport, path, signal);
    if (resumed !== undefined) return resumed;
    await deadline.sleep(pauseMs(count));
    info = await fetchSandbox(transport, path, { signal });
  }
  return undefined;
}

/** Resolves with undefined when another caller has changed the state of the sandbox. */
async function tryResume(
  transport: Transport,
  path: string,
  signal: AbortSignal,
): Promise<SandboxInfo | undefined> {
  try {
    return await changeState(transport, path, 'resume', { signal });
  } catch (error) {
    if (isCode(error, 'invalid_state')) return undefined;
    throw error;
  }
}

function isCode(error: unknown, code: CoppiceError['code']): error is CoppiceError {
  return error instanceof CoppiceError && error.code === code;
}

function pauseMs(count: number): number {
  return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (count - 1));
}
