import { useSignal } from '@preact/signals';
import type { SecretInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { TextField } from '../../ui/Field.tsx';
import { formatNumber } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Page } from '../../ui/Page.tsx';
import { SecretField } from '../../ui/SecretField.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { deleteSecretCall, LIST_SECRETS, setSecretCall } from './secret-calls.ts';

/** `/secrets` */
export function Secrets() {
  const current = client.value;
  /** Name of the secret in the form; empty for a new one. */
  const edited = useSignal<string | undefined>(undefined);
  const deleted = useSignal<SecretInfo | undefined>(undefined);
  const resource = useResource(async (signal) => (await current?.secrets.list({ signal })) ?? [], [current], {
    // The number of sandboxes changes with them.
    concerns: ({ type }) => type.startsWith('sandbox.'),
  });
  return (
    <Page
      title="Secrets"
      lead="The host adds them to requests: code in a sandbox uses an API and never sees its key."
      actions={
        <>
          <CopyAsCode {...LIST_SECRETS} />
          <Button kind="primary" icon="plus" onClick={() => (edited.value = '')}>
            New secret
          </Button>
        </>
      }
    >
      <Loaded resource={resource} rows={3}>
        {(secrets) => (
          <SecretTable
            secrets={secrets}
            onSet={(name) => (edited.value = name)}
            onDelete={(secret) => (deleted.value = secret)}
          />
        )}
      </Loaded>
      {edited.value !== undefined && (
        <SetSecret name={edited.value} onClose={() => (edited.value = undefined)} onDone={resource.reload} />
      )}
      {deleted.value !== undefined && (
        <DeleteSecret
          secret={deleted.value}
          onClose={() => (deleted.value = undefined)}
          onDone={resource.reload}
        />
      )}
    </Page>
  );
}

interface TableProps {
  secrets: readonly SecretInfo[];
  onSet: (name: string) => void;
  onDelete: (secret: SecretInfo) => void;
}

const COLUMNS: readonly Column<SecretInfo>[] = [
  { id: 'name', label: 'Secret', width: '1.6fr', cell: ({ name }) => <b>{name}</b> },
  { id: 'used', label: 'Used by', width: '1.4fr', cell: (secret) => <UsedBy secret={secret} /> },
  {
    id: 'version',
    label: 'Version',
    width: '6rem',
    align: 'end',
    cell: ({ version }) => formatNumber(version),
  },
  {
    id: 'updated',
    label: 'Value set',
    width: '7rem',
    align: 'end',
    cell: ({ updatedAt }) => <Ago at={updatedAt} />,
  },
  {
    id: 'created',
    label: 'Created',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ createdAt }) => <Ago at={createdAt} />,
  },
];

function SecretTable({ secrets, onSet, onDelete }: TableProps) {
  if (secrets.length === 0)
    return (
      <Empty
        icon="lock"
        title="There is no secret yet"
        action={
          <Button kind="primary" icon="plus" onClick={() => onSet('')}>
            Store the first one
          </Button>
        }
      >
        Store the key of an API under a name, and let credentials of sandboxes refer to it. A new value is in
        use everywhere at once.
      </Empty>
    );
  const columns: readonly Column<SecretInfo>[] = [
    ...COLUMNS,
    {
      id: 'actions',
      label: 'Actions',
      width: '4.5rem',
      align: 'end',
      cell: (secret) => (
        <Menu
          label={`Actions for ${secret.name}`}
          button={<Icon name="more" />}
          items={[
            { label: 'Set a new value', icon: 'key', onSelect: () => onSet(secret.name) },
            { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: () => onDelete(secret) },
          ]}
        />
      ),
    },
  ];
  return <DataTable label="Secrets" columns={columns} rows={secrets} rowId={({ name }) => name} />;
}

function UsedBy({ secret: { sandboxes, outdatedSandboxes } }: { secret: SecretInfo }) {
  if (sandboxes === 0) return <span class="soft">no sandbox</span>;
  return (
    <span class="row">
      {sandboxes === 1 ? 'one sandbox' : `${formatNumber(sandboxes)} sandboxes`}
      {outdatedSandboxes > 0 && (
        <Badge tone="warn">{formatNumber(outdatedSandboxes)} with an old value</Badge>
      )}
    </span>
  );
}

interface SetProps {
  name: string;
  onClose: () => void;
  onDone: () => void;
}

function SetSecret({ name: given, onClose, onDone }: SetProps) {
  const name = useSignal(given);
  const value = useSignal('');
  const isNew = given === '';
  return (
    <ActionDialog
      title={isNew ? 'New secret' : `New value of ${given}`}
      verb={isNew ? 'Store secret' : 'Set value'}
      done={`${name.value} is stored.`}
      isDisabled={name.value === '' || value.value === ''}
      act={() => requireClient().secrets.set(name.value, value.value)}
      onClose={onClose}
      onDone={onDone}
      code={setSecretCall(name.value || 'openai-production')}
    >
      {isNew ? (
        <TextField
          label="Name"
          hint="At most 40 lower-case letters, digits, - and _. Begins with a letter."
          value={name.value}
          onValue={(text) => (name.value = text)}
          attributes={{ autofocus: true, placeholder: 'openai-production', maxLength: 40 }}
        />
      ) : (
        <p>
          Running sandboxes use the new value from their next request on, hibernated ones from their resume.
        </p>
      )}
      <SecretField
        label="Value"
        hint="It is stored encrypted and never shown again."
        value={value.value}
        onValue={(text) => (value.value = text)}
      />
    </ActionDialog>
  );
}

interface DeleteProps {
  secret: SecretInfo;
  onClose: () => void;
  onDone: () => void;
}

function DeleteSecret({ secret: { name, sandboxes }, onClose, onDone }: DeleteProps) {
  return (
    <ActionDialog
      title={`Delete ${name}`}
      verb="Delete secret"
      kind="danger"
      done={`${name} is deleted.`}
      act={() => requireClient().secrets.delete(name)}
      onClose={onClose}
      onDone={onDone}
      code={deleteSecretCall(name)}
    >
      <p>
        {sandboxes === 0
          ? 'Its value is deleted for good. No sandbox uses it.'
          : 'Sandboxes use it: set their credentials without it first. To stop its use at once, set another value.'}
      </p>
    </ActionDialog>
  );
}
