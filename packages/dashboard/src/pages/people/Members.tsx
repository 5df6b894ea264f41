import { useSignal } from '@preact/signals';
import type { MemberRecord } from '../../../../contract/src/accounts/organizations.ts';
import { callAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { account, isOwner, organizationPath, place, refreshAccount } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatDay } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { Menu, type MenuItem } from '../../ui/Menu.tsx';
import { Loaded } from '../../ui/states.tsx';
import { showHidden } from '../../ui/visible-text.ts';

type Change = 'promote' | 'demote' | 'remove' | 'leave';

interface Asked {
  change: Change;
  member: MemberRecord;
}

/** The members of the organization. Owners change them; anyone may leave. */
export function Members() {
  const path = organizationPath.value;
  const members = useResource((): Promise<MemberRecord[]> => callAccount('GET', `${path}/members`), [path]);
  const asked = useSignal<Asked | undefined>(undefined);
  return (
    <section class="section">
      <h2>Members</h2>
      <Loaded resource={members} rows={3}>
        {(list) => (
          <DataTable
            label="Members"
            columns={listColumns((change, member) => (asked.value = { change, member }))}
            rows={list}
            rowId={({ id }) => id}
          />
        )}
      </Loaded>
      {asked.value !== undefined && (
        <ChangeDialog
          {...asked.value}
          path={path}
          onDone={members.reload}
          onClose={() => (asked.value = undefined)}
        />
      )}
    </section>
  );
}

function listColumns(ask: (change: Change, member: MemberRecord) => void): readonly Column<MemberRecord>[] {
  const columns: Column<MemberRecord>[] = [
    {
      id: 'name',
      label: 'Person',
      width: '2fr',
      cell: (member) => (
        <span class="person">
          <span class="avatar" aria-hidden="true">
            {firstLetter(member.name)}
          </span>
          <b>
            <GuestText text={member.name} />
          </b>
          {isSelf(member) && <span class="soft">you</span>}
        </span>
      ),
    },
    { id: 'email', label: 'E-mail address', width: '2fr', cell: ({ email }) => <GuestText text={email} /> },
    {
      id: 'role',
      label: 'Role',
      width: '7rem',
      cell: ({ role }) => <Badge tone={role === 'owner' ? 'good' : 'calm'}>{role}</Badge>,
    },
    {
      id: 'joined',
      label: 'Joined',
      width: '8rem',
      isMinor: true,
      align: 'end',
      cell: ({ joined_at: at }) => formatDay(at),
    },
    {
      id: 'actions',
      label: 'Actions',
      width: '3.5rem',
      align: 'end',
      isAction: true,
      cell: (member) => <MemberMenu member={member} ask={ask} />,
    },
  ];
  return columns;
}

function MemberMenu({
  member,
  ask,
}: {
  member: MemberRecord;
  ask: (change: Change, member: MemberRecord) => void;
}) {
  const items: MenuItem[] = [];
  const add = (change: Change, item: Omit<MenuItem, 'onSelect'>): void => {
    items.push({ ...item, onSelect: () => ask(change, member) });
  };
  if (isOwner.value && member.role === 'member') add('promote', { label: 'Make an owner', icon: 'key' });
  if (isOwner.value && member.role === 'owner') add('demote', { label: 'Make a member', icon: 'people' });
  if (isSelf(member)) add('leave', { label: 'Leave the organization', icon: 'logout', kind: 'danger' });
  else if (isOwner.value) add('remove', { label: 'Remove', icon: 'trash', kind: 'danger' });
  if (items.length === 0) return null;
  return (
    <Menu label={`Actions for ${showHidden(member.name)}`} button={<Icon name="more" />} items={items} />
  );
}

function ChangeDialog({
  change,
  member,
  path,
  onDone,
  onClose,
}: Asked & { path: string; onDone: () => void; onClose: () => void }) {
  const memberPath = `${path}/members/${member.id}`;
  const act = async (): Promise<void> => {
    if (change === 'promote') await callAccount('PATCH', memberPath, { role: 'owner' });
    else if (change === 'demote') await callAccount('PATCH', memberPath, { role: 'member' });
    else await callAccount('DELETE', memberPath);
    if (change !== 'leave') onDone();
    if (isSelf(member)) await refreshAccount();
  };
  const { title, verb, done, effect } = wordsFor(change, member);
  return (
    <ActionDialog
      title={title}
      verb={verb}
      done={done}
      kind={change === 'promote' ? 'primary' : 'danger'}
      act={act}
      onClose={onClose}
    >
      <p>{effect}</p>
    </ActionDialog>
  );
}

interface ChangeWords {
  title: string;
  verb: string;
  done: string;
  effect: string;
}

function wordsFor(change: Change, member: MemberRecord): ChangeWords {
  const name = showHidden(member.name);
  const organization = showHidden(place.value?.organization.name ?? 'the organization');
  const words: Record<Change, ChangeWords> = {
    promote: {
      title: `Make ${name} an owner?`,
      verb: 'Make an owner',
      done: `${name} is an owner.`,
      effect:
        'Owners see all teams and the audit log, invite and remove people, and read the secrets of audit logs.',
    },
    demote: {
      title: `Make ${name} a member?`,
      verb: 'Make a member',
      done: `${name} is a member.`,
      effect:
        'A member works only in the teams that they are in, and can neither invite people nor read the audit log.',
    },
    remove: {
      title: `Remove ${name}?`,
      verb: 'Remove',
      done: `${name} is removed.`,
      effect:
        'They lose access at once. API keys of their teams continue to work: rotate those that they know.',
    },
    leave: {
      title: `Leave ${organization}?`,
      verb: 'Leave',
      done: `You left ${organization}.`,
      effect: 'You lose access at once. To come back, you need an invitation.',
    },
  };
  return words[change];
}

function isSelf({ id }: { id: string }): boolean {
  return id === account.value?.user.id;
}

function firstLetter(name: string): string {
  return (Array.from(name)[0] ?? '').toUpperCase();
}
