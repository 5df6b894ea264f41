/** Reads the family of a sandbox, and keeps it up to date by events. */
import { useRef } from 'preact/hooks';
import type { Coppice, EventInfo, SandboxTree, SnapshotInfo } from '../../../../../sdk/src/index.ts';
import { useResource, type Resource } from '../../../service/resource.ts';

export interface FamilyRecords {
  tree: SandboxTree;
  snapshots: readonly SnapshotInfo[];
  /** Snapshots from which sandboxes were restored. */
  origins: ReadonlyMap<string, string>;
}

/** Of the organization. */
const MAX_SNAPSHOTS = 2000;
/** Sandboxes whose origin is looked up in one reading. */
const MAX_LOOKUPS = 60;
const LOOKUPS_AT_ONCE = 4;

/** The data of the event `sandbox.created` never change. Null: it names no snapshot, or is no longer kept. */
const knownOrigins = new Map<string, string | null>();

export function useFamily(client: Coppice | undefined, id: string): Resource<FamilyRecords> {
  const members = useRef<ReadonlySet<string>>(new Set());
  return useResource(
    async (signal) => {
      if (client === undefined) throw new Error('You are in no team of this organization.');
      const records = await readFamily(client, id, signal);
      members.current = new Set(records.tree.nodes.map((node) => node.id));
      return records;
    },
    [client, id],
    { concerns: (event) => concerns(event, members.current) },
  );
}

function concerns({ type, runId, data }: EventInfo, members: ReadonlySet<string>): boolean {
  if (!type.startsWith('sandbox.') && !type.startsWith('snapshot.')) return false;
  return members.has(runId ?? '') || (typeof data['parent'] === 'string' && members.has(data['parent']));
}

async function readFamily(client: Coppice, id: string, signal: AbortSignal): Promise<FamilyRecords> {
  const [sandbox, all] = await Promise.all([
    client.sandboxes.get(id, { signal }),
    client.snapshots.list({ limit: MAX_SNAPSHOTS, signal }),
  ]);
  if (sandbox === null) throw new Error('The sandbox no longer exists.');
  const tree = await sandbox.tree({ signal });
  const members = new Set(tree.nodes.map((node) => node.id));
  const snapshots = all.filter(({ runId }) => members.has(runId));
  return { tree, snapshots, origins: await findOrigins(client, { tree, snapshots }, signal) };
}

/** Finds the snapshots of restored sandboxes. Only children of a sandbox with snapshots can hang below one. */
async function findOrigins(
  client: Coppice,
  { tree, snapshots }: Pick<FamilyRecords, 'tree' | 'snapshots'>,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const saved = new Set(snapshots.map(({ runId }) => runId));
  const unknown = tree.nodes
    .filter(({ id, parentId }) => parentId !== null && saved.has(parentId) && !knownOrigins.has(id))
    .filter(({ status }) => status !== 'creating')
    .slice(-MAX_LOOKUPS);
  const look = async (): Promise<void> => {
    for (let node = unknown.pop(); node !== undefined; node = unknown.pop())
      knownOrigins.set(node.id, await findOrigin(client, node.id, signal));
  };
  await Promise.all(Array.from({ length: LOOKUPS_AT_ONCE }, look));
  return new Map(
    tree.nodes.flatMap(({ id }) => {
      const origin = knownOrigins.get(id);
      return typeof origin === 'string' ? [[id, origin] as const] : [];
    }),
  );
}

async function findOrigin(client: Coppice, runId: string, signal: AbortSignal): Promise<string | null> {
  const [event] = await client.listEvents({ runId, after: 0, types: ['sandbox.created'], limit: 1, signal });
  const origin = event?.data['snapshot_id'];
  return typeof origin === 'string' ? origin : null;
}
