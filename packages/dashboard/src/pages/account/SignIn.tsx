import { useSignal } from '@preact/signals';
import type { AccountRecord } from '../../../../contract/src/accounts/people.ts';
import { callAccount } from '../../service/account-calls.ts';
import { enter } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { TextField } from '../../ui/Field.tsx';
import { useAction } from '../../ui/use-action.ts';
import { Outside } from './Outside.tsx';

export function SignIn() {
  return (
    <Outside title="Sign in to Coppice">
      <SignInForm />
      <p class="soft">
        New here? Open the invitation link that you were given, or{' '}
        <a href="/sign-up">sign up with an invitation</a>.
      </p>
    </Outside>
  );
}

/** Asks for the password, and for the address unless it is known. */
export function SignInForm({ email: known, onDone }: { email?: string | undefined; onDone?: () => void }) {
  const email = useSignal(known ?? '');
  const password = useSignal('');
  const action = useAction();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const isDone = await action.run(async () => {
      const body = { email: email.value, password: password.value };
      await enter(await callAccount<AccountRecord>('POST', '/sign-in', body));
    });
    if (isDone) onDone?.();
  };
  return (
    <form class="stack" onSubmit={(event) => void submit(event)}>
      <TextField
        label="E-mail address"
        value={email.value}
        onValue={(value) => (email.value = value)}
        attributes={{
          type: 'email',
          name: 'email',
          autocomplete: 'username',
          required: true,
          readOnly: known !== undefined,
        }}
      />
      <TextField
        label="Password"
        value={password.value}
        onValue={(value) => (password.value = value)}
        error={action.error}
        attributes={{
          type: 'password',
          name: 'password',
          autocomplete: 'current-password',
          required: true,
          autofocus: true,
        }}
      />
      <Button kind="primary" type="submit" isBusy={action.isBusy}>
        Sign in
      </Button>
    </form>
  );
}
