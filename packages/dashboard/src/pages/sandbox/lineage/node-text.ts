/** How people call a member of a family. */
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { showHidden } from '../../../ui/visible-text.ts';
import type { FamilyNode } from './family.ts';

/** Records of the sandboxes that have not ended, by id: only these have names. */
export type LiveRecords = ReadonlyMap<string, SandboxInfo>;

/** Names that were seen during this visit: a sandbox that ends keeps its name on the page. */
const seenNames = new Map<string, string>();

export function nameOf(node: FamilyNode, live: LiveRecords): string {
  if (node.kind === 'snapshot') return showHidden(node.record.name ?? node.id);
  const record = live.get(node.id);
  if (record !== undefined) noteName(record);
  return showHidden(seenNames.get(node.id) ?? node.id);
}

/** Remembers the name in a record. */
export function noteName({ id, name }: Pick<SandboxInfo, 'id' | 'name'>): void {
  if (name === null) seenNames.delete(id);
  else seenNames.set(id, name);
}
