import { useSignal } from '@preact/signals';
import type { RegistryInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { TextField } from '../../ui/Field.tsx';
import { GuestText } from '../../ui/GuestText.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { SecretField } from '../../ui/SecretField.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { deleteRegistryCall, LIST_REGISTRIES, setRegistryCall } from './image-calls.ts';

/** Logins of private registries. The service never shows their passwords. */
export function RegistryList() {
  const current = client.value;
  const edited = useSignal<RegistryInfo | 'new' | undefined>(undefined);
  const deleted = useSignal<string | undefined>(undefined);
  const resource = useResource(
    async (signal) => (await current?.registries.list({ signal })) ?? [],
    [current],
  );
  return (
    <>
      <div class="filters">
        <p class="soft">Creates and builds use these logins for private images. Passwords are never shown.</p>
        <span class="gap" />
        <CopyAsCode {...LIST_REGISTRIES} />
        <Button icon="plus" kind="primary" onClick={() => (edited.value = 'new')}>
          New login
        </Button>
      </div>
      <Loaded resource={resource} rows={2}>
        {(registries) => (
          <RegistryTable
            registries={registries}
            onEdit={(registry) => (edited.value = registry)}
            onDelete={(registry) => (deleted.value = registry)}
          />
        )}
      </Loaded>
      {edited.value !== undefined && (
        <SetRegistry
          before={edited.value === 'new' ? undefined : edited.value}
          onClose={() => (edited.value = undefined)}
          onDone={resource.reload}
        />
      )}
      {deleted.value !== undefined && (
        <DeleteRegistry
          registry={deleted.value}
          onClose={() => (deleted.value = undefined)}
          onDone={resource.reload}
        />
      )}
    </>
  );
}

interface TableProps {
  registries: readonly RegistryInfo[];
  onEdit: (registry: RegistryInfo | 'new') => void;
  onDelete: (registry: string) => void;
}

function RegistryTable({ registries, onEdit, onDelete }: TableProps) {
  if (registries.length === 0)
    return (
      <Empty
        icon="lock"
        title="There is no login"
        action={
          <Button kind="primary" icon="plus" onClick={() => onEdit('new')}>
            Store a login
          </Button>
        }
      >
        Public images need none. Store one to use images of a private registry.
      </Empty>
    );
  const columns: readonly Column<RegistryInfo>[] = [
    {
      id: 'registry',
      label: 'Registry',
      width: '1.6fr',
      cell: ({ registry }) => <b class="mono">{registry}</b>,
    },
    { id: 'username', label: 'User', width: '1.4fr', cell: ({ username }) => <GuestText text={username} /> },
    {
      id: 'updated',
      label: 'Changed',
      width: '7rem',
      align: 'end',
      cell: ({ updatedAt }) => <Ago at={updatedAt} />,
    },
    {
      id: 'actions',
      label: 'Actions',
      width: '4.5rem',
      align: 'end',
      cell: (entry) => (
        <Menu
          label={`Actions for ${entry.registry}`}
          button={<Icon name="more" />}
          items={[
            { label: 'Replace', icon: 'key', onSelect: () => onEdit(entry) },
            { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: () => onDelete(entry.registry) },
          ]}
        />
      ),
    },
  ];
  return (
    <DataTable label="Registries" columns={columns} rows={registries} rowId={({ registry }) => registry} />
  );
}

interface SetProps {
  before: RegistryInfo | undefined;
  onClose: () => void;
  onDone: () => void;
}

function SetRegistry({ before, onClose, onDone }: SetProps) {
  const registry = useSignal(before?.registry ?? '');
  const username = useSignal(before?.username ?? '');
  const password = useSignal('');
  const isComplete = registry.value.trim() !== '' && username.value !== '' && password.value !== '';
  return (
    <ActionDialog
      title={before === undefined ? 'New login' : 'Replace the login'}
      verb="Store"
      done={`The login for ${registry.value} is stored.`}
      isDisabled={!isComplete}
      act={() =>
        requireClient().registries.set(registry.value.trim(), {
          username: username.value,
          password: password.value,
        })
      }
      onClose={onClose}
      onDone={onDone}
      code={setRegistryCall(registry.value || 'ghcr.io', username.value || 'robot')}
    >
      <TextField
        label="Registry"
        hint="Host, or host:port. docker.io for images without a registry in their name."
        value={registry.value}
        onValue={(value) => (registry.value = value)}
        attributes={{ placeholder: 'ghcr.io', readOnly: before !== undefined }}
      />
      <TextField label="User" value={username.value} onValue={(value) => (username.value = value)} />
      <SecretField
        label="Password or token"
        hint="A token that can only read is enough."
        value={password.value}
        onValue={(value) => (password.value = value)}
      />
    </ActionDialog>
  );
}

function DeleteRegistry({
  registry,
  onClose,
  onDone,
}: {
  registry: string;
  onClose: () => void;
  onDone: () => void;
}) {
  return (
    <ActionDialog
      title="Delete the login"
      verb="Delete login"
      kind="danger"
      done={`The login for ${registry} is deleted.`}
      act={() => requireClient().registries.delete(registry)}
      onClose={onClose}
      onDone={onDone}
      code={deleteRegistryCall(registry)}
    >
      <p>
        Later creates and builds use {registry} without a login. Sandboxes that exist keep what they need.
      </p>
    </ActionDialog>
  );
}
