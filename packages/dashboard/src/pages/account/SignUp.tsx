import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { AccountRecord } from '../../../../contract/src/accounts/people.ts';
import { callAccount } from '../../service/account-calls.ts';
import { account, enter, sessionState } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { TextField } from '../../ui/Field.tsx';
import { useAction } from '../../ui/use-action.ts';
import { AcceptInvitation } from './AcceptInvitation.tsx';
import { readInvitation } from './invitation.ts';
import { Outside } from './Outside.tsx';

/** The page of an invitation link. */
export function SignUp() {
  const invitation = readInvitation();
  if (sessionState.value === 'ready')
    return (
      <Outside title="You are invited" lead={`You are signed in as ${account.value?.user.email ?? ''}.`}>
        <AcceptInvitation invitation={invitation} />
      </Outside>
    );
  return (
    <Outside title="Welcome to Coppice" lead="Create your account. It takes one minute.">
      <SignUpForm invitation={invitation} />
      <p class="soft">
        You have an account? <a href={`/sign-in?next=${encodeURIComponent('/sandboxes')}`}>Sign in</a> first,
        then open the link again.
      </p>
    </Outside>
  );
}

function SignUpForm({ invitation: given }: { invitation: string }) {
  const { route } = useLocation();
  const invitation = useSignal(given);
  const name = useSignal('');
  const email = useSignal('');
  const password = useSignal('');
  const action = useAction();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const isDone = await action.run(async () => {
      const body = {
        email: email.value,
        name: name.value.trim(),
        password: password.value,
        invitation: invitation.value.trim(),
      };
      await enter(await callAccount<AccountRecord>('POST', '/sign-up', body));
    });
    // The invitation is used up; the address must not stay in the history.
    if (isDone) route('/sandboxes', true);
  };
  return (
    <form class="stack" onSubmit={(event) => void submit(event)}>
      {given === '' && (
        <TextField
          label="Invitation"
          hint="It begins with inv_ and was given to you, or printed by the first start of the service."
          value={invitation.value}
          onValue={(value) => (invitation.value = value)}
          attributes={{ required: true }}
        />
      )}
      <TextField
        label="Your name"
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ autocomplete: 'name', required: true, autofocus: true }}
      />
      <TextField
        label="E-mail address"
        value={email.value}
        onValue={(value) => (email.value = value)}
        attributes={{ type: 'email', name: 'email', autocomplete: 'username', required: true }}
      />
      <TextField
        label="Password"
        hint="10 characters or more."
        value={password.value}
        onValue={(value) => (password.value = value)}
        attributes={{ type: 'password', autocomplete: 'new-password', required: true, minLength: 10 }}
      />
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
      <Button kind="primary" type="submit" isBusy={action.isBusy}>
        Create the account
      </Button>
    </form>
  );
}
