import type { ComponentChildren } from 'preact';
import { CopyAsCode } from './CopyAsCode.tsx';
import { Button } from './Button.tsx';
import { Dialog } from './Dialog.tsx';
import { showDone } from './toasts.tsx';
import { useAction } from './use-action.ts';

interface ActionDialogProps {
  title: string;
  /** Label of the button that acts. */
  verb: string;
  kind?: 'primary' | 'danger';
  /** Explains the action, or contains its fields. */
  children?: ComponentChildren;
  /** The fields are not complete. */
  isDisabled?: boolean;
  act: () => Promise<unknown>;
  /** Shown when it is done. */
  done?: string;
  /** Called when it is done, after `onClose`: for a change of the page. */
  onDone?: () => void;
  onClose: () => void;
  /** The same action as code. */
  code?: Parameters<typeof CopyAsCode>[0] | undefined;
  size?: 'small' | 'large';
}

/** Asks before an action, or for what it needs; shows its failure, and closes when it is done. */
export function ActionDialog(props: ActionDialogProps) {
  const { title, verb, kind = 'primary', children, isDisabled = false, act, done, onClose, code } = props;
  const action = useAction();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!(await action.run(act))) return;
    if (done !== undefined) showDone(done);
    onClose();
    props.onDone?.();
  };
  return (
    <Dialog title={title} onClose={onClose} size={props.size ?? 'small'}>
      <form onSubmit={(event) => void submit(event)}>
        {children}
        {action.error !== undefined && (
          <p class="fault" role="alert">
            {action.error}
          </p>
        )}
        <div class="dialog-foot">
          {code !== undefined && <CopyAsCode {...code} />}
          <span class="gap" />
          <Button onClick={onClose}>Cancel</Button>
          <Button kind={kind} type="submit" isBusy={action.isBusy} isDisabled={isDisabled}>
            {verb}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
