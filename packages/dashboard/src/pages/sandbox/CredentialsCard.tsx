import { useSignal } from '@preact/signals';
import type { CredentialEndpoint, CredentialInfo, Sandbox } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button, IconButton } from '../../ui/Button.tsx';
import { SelectField, TextField } from '../../ui/Field.tsx';
import { Card } from '../../ui/Page.tsx';
import { SecretField } from '../../ui/SecretField.tsx';
import { Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { setCredentialsCall } from '../network/network-calls.ts';
import { findRowFault, toCredentialOptions, toRows, type CredentialRow } from './credential-rows.ts';

/** Services of every installation; the operator may have added others. */
const SERVICES = ['openai', 'anthropic', 'google', 'github', 'huggingface'] as const;

/** The secrets that the host adds to requests of a sandbox. */
export function CredentialsCard({ sandbox }: { sandbox: Sandbox }) {
  const isOpen = useSignal(false);
  const resource = useResource((signal) => sandbox.credentials({ signal }), [sandbox.id]);
  return (
    <Card
      title="Credentials"
      actions={
        <Button icon="key" isDisabled={resource.value === undefined} onClick={() => (isOpen.value = true)}>
          Set credentials
        </Button>
      }
    >
      <Loaded resource={resource} rows={1}>
        {(credentials) => <CredentialList credentials={credentials} />}
      </Loaded>
      {isOpen.value && (
        <SetCredentials
          sandbox={sandbox}
          before={resource.value ?? []}
          onClose={() => (isOpen.value = false)}
          onDone={resource.set}
        />
      )}
    </Card>
  );
}

function CredentialList({ credentials }: { credentials: readonly CredentialInfo[] }) {
  if (credentials.length === 0)
    return <p class="soft">None. With one, code in the sandbox uses an API, and never sees its key.</p>;
  return (
    <ul class="lines">
      {credentials.map(({ service, secret, endpoints, updatedAt }) => (
        <li key={service} class="line">
          <span class="line-main">
            <b>{service}</b>
            <span class="soft">{describeEndpoints(endpoints)}</span>
          </span>
          <span>{secret === null ? 'a value of its own' : <a href="/secrets">{secret}</a>}</span>
          <span class="soft">
            <Ago at={updatedAt} />
          </span>
        </li>
      ))}
    </ul>
  );
}

function describeEndpoints(endpoints: readonly CredentialEndpoint[] | null): string {
  if (endpoints === null) return 'Signs any request.';
  if (endpoints.length === 0) return 'Signs no request.';
  const parts = endpoints.map(({ methods, paths }) =>
    [
      methods.length === 0 ? 'any method' : methods.join(', '),
      paths.length === 0 ? 'any path' : paths.join(', '),
    ].join(' '),
  );
  return `Signs ${parts.join('; ')}.`;
}

interface SetProps {
  sandbox: Sandbox;
  before: readonly CredentialInfo[];
  onClose: () => void;
  onDone: (credentials: CredentialInfo[]) => void;
}

function SetCredentials({ sandbox, before, onClose, onDone }: SetProps) {
  const current = client.value;
  const rows = useSignal<readonly CredentialRow[]>(toRows(before));
  const secrets =
    useResource(async (signal) => (await current?.secrets.list({ signal })) ?? [], [current]).value ?? [];
  const change = (id: number, fields: Partial<CredentialRow>): void => {
    rows.value = rows.value.map((row) => (row.id === id ? { ...row, ...fields } : row));
  };
  const add = (): void => {
    const id = 1 + Math.max(0, ...rows.value.map((row) => row.id));
    const service = SERVICES.find((name) => rows.value.every((row) => row.service !== name)) ?? '';
    rows.value = [...rows.value, { id, service, secret: secrets[0]?.name ?? '', value: '', endpoints: null }];
  };
  const named = rows.value.map(
    ({ service, secret }) => [service, secret === '' ? undefined : secret] as const,
  );
  return (
    <ActionDialog
      title="Set credentials"
      verb="Replace credentials"
      size="large"
      done="The credentials are in force."
      isDisabled={rows.value.some((row) => findRowFault(row, rows.value) !== undefined)}
      act={async () => onDone(await sandbox.setCredentials(toCredentialOptions(rows.value)))}
      onClose={onClose}
      code={setCredentialsCall(sandbox.id, Object.fromEntries(named))}
    >
      <p class="soft">
        This replaces all credentials. Enter values of their own again: the service does not show them.
      </p>
      {rows.value.map((row) => (
        <CredentialFields
          key={row.id}
          row={row}
          secrets={secrets.map(({ name }) => name)}
          fault={findRowFault(row, rows.value)}
          onChange={(fields) => change(row.id, fields)}
          onRemove={() => (rows.value = rows.value.filter(({ id }) => id !== row.id))}
        />
      ))}
      <div class="row">
        <Button icon="plus" onClick={add}>
          Add a service
        </Button>
        {rows.value.length === 0 && <span class="soft">Without a service, all credentials are revoked.</span>}
      </div>
      <datalist id="credential-services">
        {SERVICES.map((service) => (
          <option key={service} value={service} />
        ))}
      </datalist>
    </ActionDialog>
  );
}

interface RowProps {
  row: CredentialRow;
  secrets: readonly string[];
  fault: string | undefined;
  onChange: (fields: Partial<CredentialRow>) => void;
  onRemove: () => void;
}

function CredentialFields({ row, secrets, fault, onChange, onRemove }: RowProps) {
  const names = row.secret === '' || secrets.includes(row.secret) ? secrets : [row.secret, ...secrets];
  return (
    <div class="credential-row">
      <TextField
        label="Service"
        value={row.service}
        onValue={(service) => onChange({ service })}
        attributes={{ list: 'credential-services', maxLength: 24 }}
      />
      <SelectField
        label="Secret"
        value={row.secret}
        options={[['', 'A value of its own'], ...names.map((name) => [name, name] as const)]}
        onValue={(secret) => onChange({ secret })}
      />
      <IconButton icon="trash" label={`Remove ${row.service}`} onClick={onRemove} />
      <div class="credential-value">
        {row.secret === '' && (
          <SecretField label="Value" value={row.value} onValue={(value) => onChange({ value })} />
        )}
        {row.endpoints !== null && <span class="hint">{describeEndpoints(row.endpoints)}</span>}
        {fault !== undefined && <span class="hint">{fault}</span>}
      </div>
    </div>
  );
}
