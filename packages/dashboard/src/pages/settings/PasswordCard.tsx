import { useSignal } from '@preact/signals';
import { callAccount } from '../../service/account-calls.ts';
import { Button } from '../../ui/Button.tsx';
import { TextField } from '../../ui/Field.tsx';
import { Card } from '../../ui/Page.tsx';
import { showDone } from '../../ui/toasts.tsx';
import { useAction } from '../../ui/use-action.ts';

/** Changes the password, which ends the other sessions. */
export function PasswordCard({ email, onChanged }: { email: string; onChanged: () => void }) {
  const current = useSignal('');
  const next = useSignal('');
  const again = useSignal('');
  const action = useAction();
  const isDifferent = again.value !== '' && again.value !== next.value;
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (next.value !== again.value) return;
    const body = { current_password: current.value, new_password: next.value };
    if (!(await action.run(() => callAccount('POST', '/password', body)))) return;
    current.value = '';
    next.value = '';
    again.value = '';
    onChanged();
    showDone('Your password is changed. Your other sessions have ended.');
  };
  return (
    <Card title="Password">
      <form class="stack form-narrow" onSubmit={(event) => void submit(event)}>
        {/* For password managers. */}
        <input type="email" name="email" autocomplete="username" value={email} readOnly hidden />
        <TextField
          label="Current password"
          value={current.value}
          onValue={(value) => (current.value = value)}
          attributes={{ type: 'password', autocomplete: 'current-password', required: true }}
        />
        <TextField
          label="New password"
          hint="10 to 256 characters, and not your e-mail address."
          value={next.value}
          onValue={(value) => (next.value = value)}
          attributes={{ type: 'password', autocomplete: 'new-password', required: true, minLength: 10 }}
        />
        <TextField
          label="New password again"
          error={isDifferent ? 'It differs from the new password.' : undefined}
          value={again.value}
          onValue={(value) => (again.value = value)}
          attributes={{ type: 'password', autocomplete: 'new-password', required: true }}
        />
        {action.error !== undefined && (
          <p class="fault" role="alert">
            {action.error}
          </p>
        )}
        <div class="row">
          <Button kind="primary" type="submit" isBusy={action.isBusy} isDisabled={isDifferent}>
            Change the password
          </Button>
          <span class="hint">Your other sessions end.</span>
        </div>
      </form>
    </Card>
  );
}
