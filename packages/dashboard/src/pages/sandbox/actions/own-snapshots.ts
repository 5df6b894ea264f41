import type {
  Coppice,
  Sandbox,
  SandboxInfo,
  SandboxTreeNode,
  SnapshotInfo,
} from '../../../../../sdk/src/index.ts';

/** Generations above a sandbox of which snapshots are offered. */
const MAX_GENERATIONS = 16;

/** Returns the sandbox with its parent, the parent's parent, and so on. */
export function listAncestry(nodes: readonly SandboxTreeNode[], id: string): string[] {
  const parents = new Map(nodes.map((node) => [node.id, node.parentId]));
  const line: string[] = [];
  for (let at: string | null = id; at !== null && !line.includes(at); at = parents.get(at) ?? null)
    line.push(at);
  return line.slice(0, MAX_GENERATIONS);
}

/** A rollback takes only a snapshot of the same size. */
export function fits(snapshot: SnapshotInfo, { vcpus, memMiB, diskMiB }: SandboxInfo): boolean {
  return snapshot.vcpus === vcpus && snapshot.memMiB === memMiB && snapshot.diskMiB === diskMiB;
}

/** Lists the snapshots to which a sandbox can be rolled back, newest first. */
export async function listOwnSnapshots(
  client: Coppice,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<SnapshotInfo[]> {
  const { nodes } = await sandbox.tree({ signal });
  const lists = await Promise.all(
    listAncestry(nodes, sandbox.id).map(async (runId) => client.snapshots.list({ runId, signal })),
  );
  return lists
    .flat()
    .filter((snapshot) => fits(snapshot, sandbox.record))
    .sort((a, b) => b.createdAt.localeCompare(a.createdAt));
}
