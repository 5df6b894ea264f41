import { account, forget } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { SignInForm } from './SignIn.tsx';

/** Asks for the password when the session has ended while the page was open: the page stays as it is below. */
export function Reauthenticate() {
  return (
    <Dialog title="Sign in again" onClose={() => undefined} isFixed>
      <p>Your session has ended. Sign in again to continue where you were.</p>
      <SignInForm email={account.value?.user.email} />
      <div class="dialog-foot">
        <Button kind="quiet" onClick={forget}>
          Use another account
        </Button>
      </div>
    </Dialog>
  );
}
