/** How people call a member of a family. */
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import type { FamilyNode } from './family.ts';

/** Records of the sandboxes that have not ended, by id: only these have names. */
export type LiveRecords = ReadonlyMap<string, SandboxInfo>;

export function nameOf(node: FamilyNode, live: LiveRecords): string {
  if (node.kind === 'snapshot') return node.record.name ?? node.id;
  return live.get(node.id)?.name ?? node.id;
}
