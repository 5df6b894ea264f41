import { useSignal } from '@preact/signals';
import type {
  MemberRecord,
  TeamMemberRecord,
  TeamRecord,
} from '../../../../contract/src/accounts/organizations.ts';
import { callAccount } from '../../service/account-calls.ts';
import { useResource, type Resource } from '../../service/resource.ts';
import { account, isOwner, organizationPath, place, refreshAccount } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button, IconButton } from '../../ui/Button.tsx';
import { SelectField } from '../../ui/Field.tsx';
import { formatNumber } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { NameDialog } from './NameDialog.tsx';

/** With more teams, each one is read when it is opened. */
const MAX_OPEN = 8;

/** The teams of the organization with their members. Owners change them. */
export function Teams() {
  const path = `${organizationPath.value}/teams`;
  const teams = useResource((): Promise<TeamRecord[]> => callAccount('GET', path), [path]);
  const isCreating = useSignal(false);
  return (
    <section class="section">
      <header class="section-head">
        <h2>Teams</h2>
        {isOwner.value && (
          <Button icon="plus" onClick={() => (isCreating.value = true)}>
            New team
          </Button>
        )}
      </header>
      <p class="soft">
        API keys and sandboxes belong to teams. Members of a team create and revoke its keys.
      </p>
      <Loaded resource={teams} rows={2}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon="people" title="There is no team" />
          ) : (
            <div class="columns start">
              {list.map((team) => (
                <TeamCard
                  key={team.id}
                  team={team}
                  path={`${path}/${team.id}`}
                  isOpen={list.length <= MAX_OPEN}
                  reloadTeams={teams.reload}
                />
              ))}
            </div>
          )
        }
      </Loaded>
      {isCreating.value && (
        <NameDialog
          title="New team"
          verb="Create the team"
          label="Name of the team"
          act={async (name) => {
            await callAccount<TeamRecord>('POST', path, { name });
            teams.reload();
            await refreshAccount();
          }}
          onClose={() => (isCreating.value = false)}
        />
      )}
    </section>
  );
}

interface TeamCardProps {
  team: TeamRecord;
  path: string;
  isOpen: boolean;
  reloadTeams: () => void;
}

function TeamCard({ team, path, isOpen: isOpenFirst, reloadTeams }: TeamCardProps) {
  const isOpen = useSignal(isOpenFirst);
  const isRenaming = useSignal(false);
  return (
    <section class="card team">
      <header class="card-head">
        <h3>
          <button
            class="disclosure"
            type="button"
            aria-expanded={isOpen.value}
            onClick={() => (isOpen.value = !isOpen.value)}
          >
            <GuestText text={team.name} />
          </button>
          {place.value?.team?.id === team.id && <Badge>shown now</Badge>}
        </h3>
        {isOwner.value && (
          <IconButton
            icon="settings"
            label={`Rename the team ${showHidden(team.name)}`}
            onClick={() => (isRenaming.value = true)}
          />
        )}
      </header>
      {isOpen.value && <TeamMembers team={team} path={path} />}
      {isRenaming.value && (
        <NameDialog
          title="Rename the team"
          verb="Rename"
          label="Name of the team"
          name={team.name}
          act={async (name) => {
            await callAccount('PATCH', path, { name });
            reloadTeams();
            await refreshAccount();
          }}
          onClose={() => (isRenaming.value = false)}
        />
      )}
    </section>
  );
}

function TeamMembers({ team, path }: { team: TeamRecord; path: string }) {
  const members = useResource(
    (): Promise<TeamMemberRecord[]> => callAccount('GET', `${path}/members`),
    [path],
  );
  const isAdding = useSignal(false);
  const removed = useSignal<TeamMemberRecord | undefined>(undefined);
  return (
    <Loaded resource={members} rows={1}>
      {(list) => (
        <>
          <MemberList team={team} members={list} remove={(member) => (removed.value = member)} />
          {isOwner.value && (
            <div>
              <Button icon="plus" kind="quiet" onClick={() => (isAdding.value = true)}>
                Add a member
              </Button>
            </div>
          )}
          {isAdding.value && (
            <AddDialog team={team} path={path} members={members} onClose={() => (isAdding.value = false)} />
          )}
          {removed.value !== undefined && (
            <RemoveDialog
              team={team}
              member={removed.value}
              path={path}
              reload={members.reload}
              onClose={() => (removed.value = undefined)}
            />
          )}
        </>
      )}
    </Loaded>
  );
}

function MemberList({
  team,
  members,
  remove,
}: {
  team: TeamRecord;
  members: readonly TeamMemberRecord[];
  remove: (member: TeamMemberRecord) => void;
}) {
  if (members.length === 0) return <p class="soft">No one is in this team.</p>;
  return (
    <ul
      class="people-list"
      aria-label={`${formatNumber(members.length)} ${members.length === 1 ? 'member' : 'members'} of ${showHidden(team.name)}`}
    >
      {members.map((member) => (
        <li key={member.id}>
          <span class="grow team-member">
            <GuestText text={member.name} />
            <span class="soft">
              <GuestText text={member.email} />
            </span>
          </span>
          {isOwner.value && (
            <IconButton
              icon="close"
              label={`Remove ${showHidden(member.name)} from ${showHidden(team.name)}`}
              onClick={() => remove(member)}
            />
          )}
        </li>
      ))}
    </ul>
  );
}

function AddDialog({
  team,
  path,
  members,
  onClose,
}: {
  team: TeamRecord;
  path: string;
  members: Resource<TeamMemberRecord[]>;
  onClose: () => void;
}) {
  const all = useResource(
    (): Promise<MemberRecord[]> => callAccount('GET', `${organizationPath.value}/members`),
    [organizationPath.value],
  );
  const chosen = useSignal('');
  const present = new Set((members.value ?? []).map(({ id }) => id));
  const others = (all.value ?? []).filter(({ id }) => !present.has(id));
  const id = others.some((member) => member.id === chosen.value) ? chosen.value : (others[0]?.id ?? '');
  return (
    <ActionDialog
      title={`Add a member to ${showHidden(team.name)}`}
      verb="Add"
      isDisabled={id === ''}
      act={async () => {
        await callAccount('PUT', `${path}/members/${id}`);
        members.reload();
        await refreshIfSelf(id);
      }}
      onClose={onClose}
    >
      <Loaded resource={all} rows={1}>
        {() =>
          others.length === 0 ? (
            <p>Every member of the organization is in this team. Invite another person first.</p>
          ) : (
            <SelectField
              label="Person"
              value={id}
              options={others.map(({ id: other, name, email }) => [other, `${showHidden(name)} · ${email}`])}
              onValue={(value) => (chosen.value = value)}
            />
          )
        }
      </Loaded>
    </ActionDialog>
  );
}

function RemoveDialog({
  team,
  member,
  path,
  reload,
  onClose,
}: {
  team: TeamRecord;
  member: TeamMemberRecord;
  path: string;
  reload: () => void;
  onClose: () => void;
}) {
  return (
    <ActionDialog
      title={`Remove ${showHidden(member.name)} from ${showHidden(team.name)}?`}
      verb="Remove"
      kind="danger"
      act={async () => {
        await callAccount('DELETE', `${path}/members/${member.id}`);
        reload();
        await refreshIfSelf(member.id);
      }}
      onClose={onClose}
    >
      <p>
        They can no longer list or create the keys of the team. The keys themselves continue to work: rotate
        those that they know.
      </p>
    </ActionDialog>
  );
}

async function refreshIfSelf(id: string): Promise<void> {
  if (id === account.value?.user.id) await refreshAccount();
}
