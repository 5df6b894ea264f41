import type { ApiKeyRecord } from '../../../../contract/src/accounts/team-keys.ts';
import { Badge } from '../../ui/Badge.tsx';
import type { Column } from '../../ui/DataTable.tsx';
import { GuestText } from '../../ui/GuestText.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Ago } from '../../ui/Time.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { endsSoon, keyState } from './key-state.ts';

export type KeyChange = 'rotate' | 'revoke';
type Ask = (change: KeyChange, key: ApiKeyRecord) => void;

export function listKeyColumns(now: number, ask: Ask): readonly Column<ApiKeyRecord>[] {
  return [
    {
      id: 'name',
      label: 'Key',
      width: '2fr',
      cell: ({ name, last4 }) => (
        <span class="person">
          <b>
            <GuestText text={name} />
          </b>
          <span class="soft mono">…{last4}</span>
        </span>
      ),
    },
    { id: 'state', label: 'State', width: '7rem', cell: (key) => <StateOf apiKey={key} now={now} /> },
    { id: 'access', label: 'Access', width: '10rem', cell: describeAccess },
    {
      id: 'created',
      label: 'Created',
      width: '6rem',
      isMinor: true,
      align: 'end',
      cell: ({ created_at: at }) => <Ago at={at} />,
    },
    {
      id: 'used',
      label: 'Last used',
      width: '6rem',
      isMinor: true,
      align: 'end',
      cell: ({ last_used_at: at }) => (at === null ? <span class="soft">never</span> : <Ago at={at} />),
    },
    { id: 'expires', label: 'Ends', width: '6rem', isMinor: true, align: 'end', cell: expiryOf },
    {
      id: 'actions',
      label: 'Actions',
      width: '3.5rem',
      align: 'end',
      isAction: true,
      cell: (key) => keyState(key, now) === 'active' && <KeyMenu apiKey={key} ask={ask} />,
    },
  ];
}

function StateOf({ apiKey, now }: { apiKey: ApiKeyRecord; now: number }) {
  const state = keyState(apiKey, now);
  if (endsSoon(apiKey, now)) return <Badge tone="warn">ends soon</Badge>;
  return <Badge tone={state === 'active' ? 'good' : state === 'revoked' ? 'bad' : 'calm'}>{state}</Badge>;
}

function describeAccess({ scope, team_only: isTeamOnly }: ApiKeyRecord): string {
  return `${scope === 'read' ? 'Read' : 'Full'} · ${isTeamOnly ? 'this team' : 'all teams'}`;
}

function expiryOf({ expires_at: at, revoked_at: revokedAt }: ApiKeyRecord) {
  if (revokedAt !== null) return <Ago at={revokedAt} />;
  return at === null ? <span class="soft">never</span> : <Ago at={at} />;
}

function KeyMenu({ apiKey, ask }: { apiKey: ApiKeyRecord; ask: Ask }) {
  return (
    <Menu
      label={`Actions for the key ${showHidden(apiKey.name)}`}
      button={<Icon name="more" />}
      items={[
        { label: 'Rotate', icon: 'refresh', onSelect: () => ask('rotate', apiKey) },
        { label: 'Revoke', icon: 'trash', kind: 'danger', onSelect: () => ask('revoke', apiKey) },
      ]}
    />
  );
}
