/** The member of a family that the reader has selected, and what is done with it. */
import { useSignal } from '@preact/signals';
import type { Family, FamilyNode } from './family.ts';
import type { FamilyAction } from './NodePanel.tsx';
import type { Opened } from './OpenDialog.tsx';

/** Where the panel covers a part of the tree: it opens when a member is chosen. */
const NARROW = '(max-width: 900px)';

export interface Choice {
  selected: FamilyNode | undefined;
  /** To be compared with the next member that is picked. */
  compared: FamilyNode | undefined;
  opened: Opened | undefined;
  select: (id: string | undefined) => void;
  /** Selects a member, or compares it if that was asked for. Returns whether it was compared. */
  pick: (id: string) => boolean;
  open: (opened: Opened | undefined) => void;
  act: (node: FamilyNode, action: FamilyAction) => void;
  stopComparing: () => void;
}

export function useChoice(family: Family, currentId: string): Choice {
  const selectedId = useSignal(matchMedia(NARROW).matches ? undefined : currentId);
  const comparedId = useSignal<string | undefined>(undefined);
  const opened = useSignal<Opened | undefined>(undefined);
  const find = (id: string | undefined): FamilyNode | undefined => family.nodes.get(id ?? '');
  const compared = find(comparedId.value);
  return {
    selected: find(selectedId.value),
    compared,
    opened: opened.value,
    select: (id) => (selectedId.value = id),
    pick: (id) => {
      const other = find(id);
      selectedId.value = id;
      if (compared === undefined || other === undefined || other === compared) return false;
      comparedId.value = undefined;
      opened.value = { action: 'compare', node: compared, other };
      return true;
    },
    open: (next) => (opened.value = next),
    act: (node, action) => {
      if (action !== 'compare') {
        opened.value = { action, node };
        return;
      }
      comparedId.value = node.id;
      if (matchMedia(NARROW).matches) selectedId.value = undefined;
    },
    stopComparing: () => (comparedId.value = undefined),
  };
}
