import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { AccountRecord } from '../../../../contract/src/accounts/people.ts';
import { callAccount } from '../../service/account-calls.ts';
import { enter } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { TextField } from '../../ui/Field.tsx';
import { useAction } from '../../ui/use-action.ts';

/** Joins an organization with the account that is signed in. */
export function AcceptInvitation({ invitation: given = '' }: { invitation?: string }) {
  const { route } = useLocation();
  const invitation = useSignal(given);
  const action = useAction();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const isDone = await action.run(async () => {
      const body = { invitation: invitation.value.trim() };
      await enter(await callAccount<AccountRecord>('POST', '/invitations/accept', body));
    });
    if (isDone) route('/sandboxes', true);
  };
  return (
    <form class="stack" onSubmit={(event) => void submit(event)}>
      <TextField
        label="Invitation"
        value={invitation.value}
        onValue={(value) => (invitation.value = value)}
        error={action.error}
        attributes={{ required: true }}
      />
      <Button kind="primary" type="submit" isBusy={action.isBusy}>
        Join the organization
      </Button>
    </form>
  );
}
