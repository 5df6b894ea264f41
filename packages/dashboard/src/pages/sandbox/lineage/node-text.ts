/** How people call a member of a family. */
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { showHidden } from '../../../ui/visible-text.ts';
import type { FamilyNode } from './family.ts';

/** Records of the sandboxes that have not ended, by id: only these have names. */
export type LiveRecords = ReadonlyMap<string, SandboxInfo>;

export function nameOf(node: FamilyNode, live: LiveRecords): string {
  const name = node.kind === 'snapshot' ? node.record.name : live.get(node.id)?.name;
  return showHidden(name ?? node.id);
}
