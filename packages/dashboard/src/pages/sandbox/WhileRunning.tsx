import type { ComponentChildren } from 'preact';
import { Button, ButtonLink } from '../../ui/Button.tsx';
import type { IconName } from '../../ui/Icon.tsx';
import { Empty } from '../../ui/states.tsx';
import { useAction } from '../../ui/use-action.ts';
import type { TabProps } from './tab-props.ts';

interface WhileRunningProps extends TabProps {
  icon: IconName;
  /** What the sandbox must run for, for example `Files`. */
  subject: string;
  children: ComponentChildren;
}

/** Shows a part that talks to the guest while the sandbox runs; otherwise says how to get there. */
export function WhileRunning({ sandbox, record, reload, icon, subject, children }: WhileRunningProps) {
  const action = useAction();
  switch (record.status) {
    case 'running':
      return <>{children}</>;
    case 'creating':
      return (
        <Empty icon="clock" title="The sandbox starts">
          {subject} appear here when it runs.
        </Empty>
      );
    case 'hibernated':
      return (
        <Empty
          icon="pause"
          title="The sandbox is hibernated"
          action={
            <>
              <Button
                kind="primary"
                icon="play"
                isBusy={action.isBusy}
                onClick={() => void action.run(() => sandbox.resume()).then(reload)}
              >
                Resume
              </Button>
              {action.error !== undefined && (
                <p class="fault" role="alert">
                  {action.error}
                </p>
              )}
            </>
          }
        >
          {subject} are shown while it runs. It continues where it was.
        </Empty>
      );
    default:
      return (
        <Empty
          icon={icon}
          title="The sandbox has ended"
          action={<ButtonLink href={`/sandboxes/${record.id}/events`}>See its events</ButtonLink>}
        >
          {subject} ended with it. A snapshot that was taken before can be restored.
        </Empty>
      );
  }
}
