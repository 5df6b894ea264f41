import { useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { Button } from '../../ui/Button.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { Menu, type MenuItem } from '../../ui/Menu.tsx';
import type { ActionProps } from './actions/action-props.ts';
import { DestroyDialog } from './actions/DestroyDialog.tsx';
import { ForkDialog } from './actions/ForkDialog.tsx';
import {
  describeOperation,
  listActions,
  type ActionId,
  type OfferedAction,
} from './actions/offered-actions.ts';
import { RollbackDialog } from './actions/RollbackDialog.tsx';
import { SettingsDialog } from './actions/SettingsDialog.tsx';
import { HibernateDialog, ResumeDialog } from './actions/SleepDialogs.tsx';
import { SnapshotDialog } from './actions/SnapshotDialog.tsx';
import { performShown } from './actions/perform-shown.ts';
import type { TabProps } from './tab-props.ts';
import { holdTerminals } from './terminal/open-terminals.ts';
import '../../styles/sandbox.css';

const DIALOGS: Record<ActionId, ComponentType<ActionProps>> = {
  fork: ForkDialog,
  snapshot: SnapshotDialog,
  hibernate: HibernateDialog,
  resume: ResumeDialog,
  rollback: RollbackDialog,
  configure: SettingsDialog,
  destroy: DestroyDialog,
};

/** Actions with a button of their own; the others are in the menu. */
const IN_SIGHT: ReadonlySet<ActionId> = new Set(['fork', 'snapshot', 'hibernate', 'resume']);

/** The actions that the sandbox allows now. Those that it does not allow say why. */
export function SandboxActions({ sandbox, record, reload }: TabProps) {
  const open = useSignal<ActionId | undefined>(undefined);
  const actions = listActions(record);
  // The actions are on the page as long as the sandbox is, whichever tab is shown.
  useEffect(() => holdTerminals(record.id), [record.id]);
  const running = describeOperation(record.operation);
  const OpenDialog = open.value === undefined ? undefined : DIALOGS[open.value];
  return (
    <div class="actions sandbox-actions">
      {running !== undefined && (
        <span class="under-way" role="status">
          <span class="spinner" aria-hidden="true" /> It is {running}
        </span>
      )}
      {actions
        .filter(({ id }) => IN_SIGHT.has(id))
        .map(({ id, label, icon, isAllowed, note }) => (
          <Button key={id} icon={icon} isDisabled={!isAllowed} title={note} onClick={() => (open.value = id)}>
            {label}
          </Button>
        ))}
      {actions.length > 0 && (
        <Menu
          label="More actions"
          button={<Icon name="more" />}
          items={actions
            .filter(({ id }) => !IN_SIGHT.has(id))
            .map((action) => toMenuItem(action, () => (open.value = action.id)))}
        />
      )}
      {OpenDialog !== undefined && (
        <OpenDialog
          sandbox={sandbox}
          record={record}
          perform={async (work) => performShown(work, reload)}
          onClose={() => (open.value = undefined)}
        />
      )}
    </div>
  );
}

function toMenuItem({ id, label, icon, isAllowed, note }: OfferedAction, onSelect: () => void): MenuItem {
  const item: MenuItem = { label, icon, isDisabled: !isAllowed, title: note, onSelect };
  if (id === 'destroy') item.kind = 'danger';
  return item;
}
