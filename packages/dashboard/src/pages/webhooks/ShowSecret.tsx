import { Button } from '../../ui/Button.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { SecretValue } from '../../ui/SecretValue.tsx';

/** The signing secret of a webhook, which the service shows once. It leaves the page with the dialog. */
export function ShowSecret({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <Dialog title="Signing secret" onClose={onClose} isFixed>
      <p>
        Copy it now: it is not shown again. Your receiver verifies with it that messages are from this
        service.
      </p>
      <SecretValue value={secret} name="the signing secret" />
      <p class="hint">
        <a href="/docs/guides/events#webhooks" target="_blank" rel="noreferrer">
          How to verify messages
        </a>
      </p>
      <div class="dialog-foot">
        <Button kind="primary" onClick={onClose}>
          I have copied it
        </Button>
      </div>
    </Dialog>
  );
}
