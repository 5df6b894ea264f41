import { useSignal } from '@preact/signals';
import type { OrganizationRecord } from '../../../../contract/src/accounts/organizations.ts';
import { callAccount } from '../../service/account-calls.ts';
import { account, isOwner, open, organizationPath, refreshAccount } from '../../service/session.ts';
import type { OrganizationInfo } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { GuestText } from '../../ui/GuestText.tsx';
import { Card, Facts } from '../../ui/Page.tsx';
import { AcceptInvitation } from '../account/AcceptInvitation.tsx';
import { NameDialog } from './NameDialog.tsx';

type Asked = 'rename' | 'create' | 'join';

/** The organization that the page shows, and the way to others. */
export function OrganizationCard({ organization }: { organization: OrganizationInfo }) {
  const asked = useSignal<Asked | undefined>(undefined);
  const close = (): void => void (asked.value = undefined);
  const { id, name, region, role } = organization;
  return (
    <Card
      title="Organization"
      actions={
        <>
          {isOwner.value && <Button onClick={() => (asked.value = 'rename')}>Rename</Button>}
          <Button onClick={() => (asked.value = 'join')}>Accept an invitation</Button>
          <Button icon="plus" onClick={() => (asked.value = 'create')}>
            New organization
          </Button>
        </>
      }
    >
      <Facts
        facts={[
          ['Name', <GuestText text={name} />],
          ['Your role', role],
          ['Region', region],
          [
            'Id',
            <span class="with-copy">
              <span class="mono">{id}</span>
              <CopyButton text={id} label="Copy the id of the organization" />
            </span>,
          ],
        ]}
      />
      {asked.value === 'rename' && <RenameDialog name={name} onClose={close} />}
      {asked.value === 'create' && <CreateDialog onClose={close} />}
      {asked.value === 'join' && (
        <Dialog title="Accept an invitation" onClose={close}>
          <p class="soft">It adds another organization to your account.</p>
          <AcceptInvitation />
        </Dialog>
      )}
    </Card>
  );
}

function RenameDialog({ name: before, onClose }: { name: string; onClose: () => void }) {
  return (
    <NameDialog
      title="Rename the organization"
      verb="Rename"
      label="Name of the organization"
      name={before}
      act={async (name) => {
        await callAccount('PATCH', organizationPath.value, { name });
        await refreshAccount();
      }}
      onClose={onClose}
    />
  );
}

function CreateDialog({ onClose }: { onClose: () => void }) {
  return (
    <NameDialog
      title="New organization"
      verb="Create the organization"
      label="Name of the organization"
      hint="It has its own people, teams, keys and sandboxes. You become its owner."
      act={async (name) => {
        const { id } = await callAccount<OrganizationRecord>('POST', '/organizations', { name });
        await refreshAccount();
        await open(account.value?.organizations.find((organization) => organization.id === id));
      }}
      onClose={onClose}
    />
  );
}
