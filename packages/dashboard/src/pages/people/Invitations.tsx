import { useSignal } from '@preact/signals';
import type { CreatedInvitation, InvitationRecord } from '../../../../contract/src/accounts/organizations.ts';
import { callAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { organizationPath } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button, IconButton } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { SelectField, TextField } from '../../ui/Field.tsx';
import { formatMoment } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { invitationLink } from '../account/invitation.ts';

const DAY_S = 86_400;
const LIVES: readonly (readonly [string, string])[] = [
  [String(DAY_S), '1 day'],
  [String(7 * DAY_S), '7 days'],
  [String(30 * DAY_S), '30 days'],
];
const ROLES = [
  ['member', 'Member'],
  ['owner', 'Owner'],
] as const;

/** Open invitations, for owners. */
export function Invitations({ isAsking, onAsked }: { isAsking: boolean; onAsked: () => void }) {
  const path = `${organizationPath.value}/invitations`;
  const open = useResource((): Promise<InvitationRecord[]> => callAccount('GET', path), [path]);
  const created = useSignal<CreatedInvitation | undefined>(undefined);
  const revoked = useSignal<InvitationRecord | undefined>(undefined);
  return (
    <section class="section">
      <h2>Invitations</h2>
      <Loaded resource={open} rows={1}>
        {(list) =>
          list.length === 0 ? (
            <p class="quiet-note">No invitation is open.</p>
          ) : (
            <DataTable
              label="Invitations"
              columns={listColumns((invitation) => (revoked.value = invitation))}
              rows={list}
              rowId={({ id }) => id}
            />
          )
        }
      </Loaded>
      {isAsking && (
        <InviteDialog
          path={path}
          onCreated={(invitation) => {
            created.value = invitation;
            open.reload();
          }}
          onClose={onAsked}
        />
      )}
      {created.value !== undefined && (
        <LinkDialog invitation={created.value} onClose={() => (created.value = undefined)} />
      )}
      {revoked.value !== undefined && (
        <RevokeDialog
          invitation={revoked.value}
          path={path}
          onDone={open.reload}
          onClose={() => (revoked.value = undefined)}
        />
      )}
    </section>
  );
}

function listColumns(revoke: (invitation: InvitationRecord) => void): readonly Column<InvitationRecord>[] {
  return [
    {
      id: 'email',
      label: 'For',
      width: '2fr',
      cell: ({ email }) =>
        email === null ? <span class="soft">Any holder of the link</span> : <GuestText text={email} />,
    },
    {
      id: 'role',
      label: 'Role',
      width: '7rem',
      cell: ({ role }) => <Badge tone={role === 'owner' ? 'good' : 'calm'}>{role}</Badge>,
    },
    {
      id: 'created',
      label: 'Created',
      width: '7rem',
      isMinor: true,
      align: 'end',
      cell: ({ created_at: at }) => <Ago at={at} />,
    },
    {
      id: 'expires',
      label: 'Expires',
      width: '7rem',
      align: 'end',
      cell: ({ expires_at: at }) => <Ago at={at} />,
    },
    {
      id: 'actions',
      label: 'Actions',
      width: '3.5rem',
      align: 'end',
      isAction: true,
      cell: (invitation) => (
        <IconButton
          icon="trash"
          label={`Revoke the invitation for ${invitation.email ?? 'any holder of the link'}`}
          onClick={() => revoke(invitation)}
        />
      ),
    },
  ];
}

function InviteDialog({
  path,
  onCreated,
  onClose,
}: {
  path: string;
  onCreated: (invitation: CreatedInvitation) => void;
  onClose: () => void;
}) {
  const role = useSignal('member');
  const email = useSignal('');
  const life = useSignal(String(7 * DAY_S));
  const act = async (): Promise<void> => {
    const address = email.value.trim();
    const body = {
      role: role.value,
      expires_in: Number(life.value),
      ...(address === '' ? {} : { email: address }),
    };
    onCreated(await callAccount<CreatedInvitation>('POST', path, body));
  };
  return (
    <ActionDialog title="Invite a person" verb="Create the invitation" act={act} onClose={onClose}>
      <p class="soft">You get a link to hand over. No mail is sent.</p>
      <SelectField
        label="Role"
        value={role.value}
        options={ROLES}
        hint={
          role.value === 'owner'
            ? 'Sees all teams, manages people and teams, and reads the audit log.'
            : 'Works in the teams to which an owner adds them.'
        }
        onValue={(value) => (role.value = value)}
      />
      <TextField
        label="E-mail address"
        isOptional
        hint="Only this address can then use the invitation. Without one, any holder of the link can."
        value={email.value}
        onValue={(value) => (email.value = value)}
        attributes={{ type: 'email', autofocus: true }}
      />
      <SelectField
        label="Valid for"
        value={life.value}
        options={LIVES}
        onValue={(value) => (life.value = value)}
      />
    </ActionDialog>
  );
}

/** Shows the link. It cannot be shown again, so only its button closes the dialog. */
function LinkDialog({ invitation, onClose }: { invitation: CreatedInvitation; onClose: () => void }) {
  const link = invitationLink(invitation.invitation);
  const { email, role, expires_at: end } = invitation;
  return (
    <Dialog title="The invitation is ready" onClose={onClose} isFixed>
      <p>
        Hand this link over to {email === null ? 'the person' : <GuestText text={email} />}. It works once,
        until {formatMoment(end)}, and makes them {role === 'owner' ? 'an owner' : 'a member'}.
      </p>
      <div class="secret">
        <code>{link}</code>
        <CopyButton text={link} label="Copy the link" />
      </div>
      <p class="once">The link is shown only now. If it is lost, revoke the invitation and create another.</p>
      <div class="dialog-foot">
        <CopyButton text={link} label="Copy the link">
          Copy the link
        </CopyButton>
        <Button kind="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  );
}

function RevokeDialog({
  invitation,
  path,
  onDone,
  onClose,
}: {
  invitation: InvitationRecord;
  path: string;
  onDone: () => void;
  onClose: () => void;
}) {
  return (
    <ActionDialog
      title="Revoke the invitation?"
      verb="Revoke"
      kind="danger"
      done="The invitation is revoked."
      act={async () => {
        await callAccount('DELETE', `${path}/${invitation.id}`);
        onDone();
      }}
      onClose={onClose}
    >
      <p>
        The link for {invitation.email === null ? 'any holder' : <GuestText text={invitation.email} />} stops
        working.
      </p>
    </ActionDialog>
  );
}
