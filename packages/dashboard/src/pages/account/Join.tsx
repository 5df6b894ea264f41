import { signOut } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { showFailure } from '../../ui/toasts.tsx';
import { AcceptInvitation } from './AcceptInvitation.tsx';
import { Outside } from './Outside.tsx';

/** For a person who belongs to no organization. */
export function Join() {
  return (
    <Outside
      title="Join an organization"
      lead="You belong to no organization yet. Ask an owner to invite you."
    >
      <AcceptInvitation />
      <Button kind="quiet" onClick={() => void signOut().catch(showFailure)}>
        Sign out
      </Button>
    </Outside>
  );
}
