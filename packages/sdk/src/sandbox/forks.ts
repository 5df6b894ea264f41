import type { CallOptions } from '../transport/client-options.ts';
import { postOnce, type CreateCallOptions } from '../transport/post-once.ts';
import { CoppiceError, firstBytes, readErrorFields, toCodes } from '../transport/errors.ts';
import { parseSandboxInfo, type SandboxInfo, type SandboxStatus } from './sandbox-record.ts';
import type { Sandbox } from './sandbox.ts';
import { labelOf, type Transport } from '../transport/transport.ts';
import {
  readArray,
  readFlag,
  readObject,
  readOptionalString,
  readString,
  requireJsonNumber,
} from '../transport/wire.ts';

/** The service answers 207 when some children of a fork are errors. */
const PARTIAL_STATUS = 207;

/**
 * Error of `fork()` when some of the children could not be created. The other children run; the caller uses or destroys
 * them. `code` and `detail` are those of the first of `errors`; `status` is 207.
 *
 * @example
 * try {
 *   await sandbox.fork(20);
 * } catch (error) {
 *   if (!(error instanceof ForkError)) throw error;
 *   console.error(`${error.children.length} run; the others: ${error.message}`);
 *   await Promise.all(error.children.map((child) => child.destroy()));
 * }
 */
export class ForkError extends CoppiceError {
  /** The children that run, in order. */
  readonly children: Sandbox[];
  /** One error for each child that could not be created, in order. */
  readonly errors: CoppiceError[];

  /** Called by the client only. */
  constructor(children: Sandbox[], errors: CoppiceError[]) {
    const [first] = errors;
    const all = children.length + errors.length;
    super(`${errors.length} of ${all} children could not be made: ${first?.message}`, {
      status: PARTIAL_STATUS,
      code: first?.code ?? 'invalid_response',
      serviceCode: first?.serviceCode,
      requestId: first?.requestId,
      detail: first?.detail,
    });
    this.name = 'ForkError';
    this.children = children;
    this.errors = errors;
  }
}

/** A sandbox of a family. Times are ISO 8601 UTC. */
export interface SandboxTreeNode {
  /** Id of the sandbox. */
  id: string;
  /** State of the sandbox. */
  status: SandboxStatus;
  /** Id of the sandbox that was forked, or whose snapshot was restored. Null for the root. */
  parentId: string | null;
  /** Time of the create. */
  createdAt: string;
  /** Time when the sandbox was destroyed or failed. Null until then. */
  endedAt: string | null;
}

/** The family of a sandbox: all sandboxes that descend, by forks and snapshots, from the same root. */
export interface SandboxTree {
  /** Id of the sandbox that was created from an image. */
  rootId: string;
  /** The sandboxes in order of creation, at most 1000: the generations nearest to the root. */
  nodes: SandboxTreeNode[];
  /** True if there are more: later sandboxes of the last generation, or further generations. */
  truncated: boolean;
}

/** Records and errors of the children, each list in order. */
interface ForkOutcome {
  records: SandboxInfo[];
  errors: CoppiceError[];
}

/** Options of `sandbox.fork()`. */
export interface ForkOptions extends CreateCallOptions {
  /**
   * Names of the children's disks, in their order, if the sandbox has a disk. Default: the name of its disk with a
   * number.
   */
  disks?: string[] | undefined;
}

/** Forks the sandbox at `sandboxPath`. Throws `TypeError` for a count of NaN or infinity. */
export async function forkSandbox(
  transport: Transport,
  sandboxPath: string,
  count: number,
  { disks, ...call }: ForkOptions,
): Promise<ForkOutcome> {
  requireJsonNumber(count, 'count');
  const path = `${sandboxPath}/fork`;
  const label = labelOf({ method: 'POST', path });
  return postOnce(
    transport,
    { path, body: disks === undefined ? { count } : { count, disks }, call },
    (value) => {
      const children = readArray(value, 'the list of children', (child) => child);
      if (children.length !== count) throw new TypeError(`${children.length} children instead of ${count}`);
      return parseChildren(children, label);
    },
  );
}

/** Fetches the family of the sandbox at `sandboxPath`. */
export async function fetchTree(
  transport: Transport,
  sandboxPath: string,
  call: CallOptions,
): Promise<SandboxTree> {
  const answer = await transport.callJson(
    { method: 'GET', path: `${sandboxPath}/tree`, idempotent: true, signal: call.signal },
    parseTree,
  );
  return answer.value;
}

function parseChildren(children: unknown[], label: string): ForkOutcome {
  const outcome: ForkOutcome = { records: [], errors: [] };
  for (const [index, child] of children.entries()) {
    const error = parseChildError(child, `${label}, child ${index + 1} of ${children.length}`);
    if (error === undefined) outcome.records.push(parseSandboxInfo(child));
    else outcome.errors.push(error);
  }
  return outcome;
}

/** Returns the error of a child, or undefined for a child that runs. */
function parseChildError(child: unknown, label: string): CoppiceError | undefined {
  const { code, message, requestId } = readErrorFields(child);
  if (code === undefined) return undefined;
  const body = firstBytes(new TextEncoder().encode(JSON.stringify(child)));
  return new CoppiceError(`HTTP ${PARTIAL_STATUS} from ${label}: ${body}`, {
    status: PARTIAL_STATUS,
    ...toCodes(code),
    requestId,
    detail: message,
  });
}

function parseTree(value: unknown): SandboxTree {
  const tree = readObject(value, 'the tree');
  return {
    rootId: readString(tree, 'root_id'),
    nodes: readArray(tree['nodes'], 'nodes', parseNode),
    truncated: readFlag(tree, 'truncated'),
  };
}

function parseNode(value: unknown): SandboxTreeNode {
  const node = readObject(value, 'the node');
  return {
    id: readString(node, 'id'),
    status: readString(node, 'status'),
    parentId: readOptionalString(node, 'parent_id'),
    createdAt: readString(node, 'created_at'),
    endedAt: readOptionalString(node, 'ended_at'),
  };
}
