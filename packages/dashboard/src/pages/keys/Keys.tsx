import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { ApiKeyRecord, CreatedApiKey } from '../../../../contract/src/accounts/team-keys.ts';
import { callAccount } from '../../service/account-calls.ts';
import { useNow, useResource } from '../../service/resource.ts';
import { place, teamPath } from '../../service/session.ts';
import { ButtonLink } from '../../ui/Button.tsx';
import { DataTable } from '../../ui/DataTable.tsx';
import { Checkbox } from '../../ui/Field.tsx';
import { formatNumber } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Card, Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import '../../styles/organization.css';
import { NoTeam } from '../account/NoTeam.tsx';
import { AuditSecrets } from './AuditSecrets.tsx';
import { CreateKeyDialog, CreatedKeyDialog, RevokeKeyDialog, RotateKeyDialog } from './key-dialogs.tsx';
import { listKeyColumns, type KeyChange } from './key-columns.tsx';
import { keyState } from './key-state.ts';

const STATE_CLOCK_MS = 30_000;

/** `/keys`; with `?new` it asks for a new key. */
export function Keys() {
  const team = place.value?.team;
  if (team === undefined) return <NoTeam />;
  return <TeamKeys key={team.id} teamName={team.name} />;
}

interface Asked {
  change: KeyChange;
  key: ApiKeyRecord;
}

function TeamKeys({ teamName }: { teamName: string }) {
  const { query, route } = useLocation();
  const path = teamPath.value;
  const keys = useResource((): Promise<ApiKeyRecord[]> => callAccount('GET', `${path}/keys`), [path]);
  const created = useSignal<CreatedApiKey | undefined>(undefined);
  const asked = useSignal<Asked | undefined>(undefined);
  const show = (key: CreatedApiKey): void => {
    created.value = key;
    keys.reload();
  };
  const close = (): void => void (asked.value = undefined);
  const { change, key } = asked.value ?? {};
  return (
    <Page
      title="API keys"
      lead={
        <span>
          Keys of the team{' '}
          <b>
            <GuestText text={teamName} />
          </b>
          , for programs, the command line and agents
        </span>
      }
      actions={
        <ButtonLink href="/keys?new" kind="primary" icon="plus">
          New key
        </ButtonLink>
      }
    >
      <Loaded resource={keys} rows={4}>
        {(list) => <KeyList keys={list} ask={(next, of) => (asked.value = { change: next, key: of })} />}
      </Loaded>
      <Card title="Secrets of the audit logs">
        <AuditSecrets
          lead="They key the logs of the sandboxes of this team. With them a log is verified without the service."
          path={`${path}/audit-secrets`}
          rotation="Logs that begin from now on are keyed by a new secret. Logs that exist keep theirs, and the old secrets stay."
        />
      </Card>
      {query['new'] !== undefined && (
        <CreateKeyDialog path={path} onCreated={show} onClose={() => route('/keys', true)} />
      )}
      {key !== undefined && change === 'rotate' && (
        <RotateKeyDialog apiKey={key} path={path} onCreated={show} onClose={close} />
      )}
      {key !== undefined && change === 'revoke' && (
        <RevokeKeyDialog apiKey={key} path={path} onDone={keys.reload} onClose={close} />
      )}
      {created.value !== undefined && (
        <CreatedKeyDialog created={created.value} onClose={() => (created.value = undefined)} />
      )}
    </Page>
  );
}

function KeyList({
  keys,
  ask,
}: {
  keys: readonly ApiKeyRecord[];
  ask: (change: KeyChange, key: ApiKeyRecord) => void;
}) {
  const now = useNow(STATE_CLOCK_MS).value;
  const isAll = useSignal(false);
  const active = keys.filter((key) => keyState(key, now) === 'active');
  const ended = keys.length - active.length;
  const shown = isAll.value ? keys : active;
  if (keys.length === 0)
    return (
      <Empty
        icon="key"
        title="This team has no key"
        action={
          <ButtonLink href="/keys?new" kind="primary" icon="plus">
            Create the first one
          </ButtonLink>
        }
      >
        Programs use the API with a key. The dashboard itself needs none.
      </Empty>
    );
  return (
    <>
      {ended > 0 && (
        <Checkbox
          label={`Show the ${formatNumber(ended)} that ${ended === 1 ? 'has' : 'have'} ended`}
          isChecked={isAll.value}
          onChange={(value) => (isAll.value = value)}
        />
      )}
      {shown.length === 0 ? (
        <Empty icon="key" title="No key is active">
          All keys of this team are revoked or have expired.
        </Empty>
      ) : (
        <DataTable label="API keys" columns={listKeyColumns(now, ask)} rows={shown} rowId={({ id }) => id} />
      )}
    </>
  );
}
