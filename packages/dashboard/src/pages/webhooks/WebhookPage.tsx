import { useSignal } from '@preact/signals';
import { useLocation, useRoute } from 'preact-iso';
import type { WebhookInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import '../../styles/resources.css';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button, ButtonLink } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { SelectField } from '../../ui/Field.tsx';
import { formatMoment } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Card, Facts, Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { Deliveries } from './Deliveries.tsx';
import { ShowSecret } from './ShowSecret.tsx';
import { deleteWebhookCall, rotateSecretCall, testWebhookCall, updateWebhookCall } from './webhook-calls.ts';
import { explainPause } from './webhook-words.ts';
import { EditWebhook } from './WebhookForm.tsx';
import { WebhookState } from './Webhooks.tsx';

type DialogName = 'edit' | 'enable' | 'pause' | 'rotate' | 'test' | 'delete';

/** `/webhooks/:id` */
export function WebhookPage() {
  const { id = '' } = useRoute().params;
  const current = client.value;
  const resource = useResource(
    async (signal) => (await current?.webhooks.get(id, { signal })) ?? null,
    [current, id],
    { concerns: ({ type, data }) => type === 'webhook.disabled' && data['webhook_id'] === id },
  );
  return (
    <Loaded resource={resource} rows={6}>
      {(webhook) =>
        webhook === null ? <Missing id={id} /> : <Found webhook={webhook} reload={resource.reload} />
      }
    </Loaded>
  );
}

function Found({ webhook, reload }: { webhook: WebhookInfo; reload: () => void }) {
  const dialog = useSignal<DialogName | undefined>(undefined);
  /** Increases when the page has caused a delivery. */
  const sent = useSignal(0);
  const show = (name: DialogName) => () => void (dialog.value = name);
  const pause = explainPause(webhook);
  const refresh = (): void => {
    sent.value += 1;
    reload();
  };
  return (
    <Page
      title={webhook.description === '' ? hostOf(webhook.url) : webhook.description}
      lead={
        <>
          <a href="/webhooks">Webhooks</a>
          <WebhookState webhook={webhook} />
          <span class="mono">{webhook.id}</span>
        </>
      }
      actions={<WebhookActions webhook={webhook} show={show} />}
    >
      {pause !== undefined && (
        <p class="note warn" role="status">
          {pause} Enable it to send what waits.
        </p>
      )}
      <WebhookFacts webhook={webhook} />
      <Deliveries webhook={webhook} sent={sent.value} />
      <WebhookDialogs
        webhook={webhook}
        name={dialog.value}
        onClose={() => (dialog.value = undefined)}
        onDone={refresh}
      />
    </Page>
  );
}

function WebhookActions({ webhook, show }: { webhook: WebhookInfo; show: (name: DialogName) => () => void }) {
  return (
    <>
      <Button icon="play" onClick={show('test')}>
        Send a test
      </Button>
      {webhook.enabled ? (
        <Button icon="pause" onClick={show('pause')}>
          Pause
        </Button>
      ) : (
        <Button icon="play" kind="primary" onClick={show('enable')}>
          Enable
        </Button>
      )}
      <Menu
        label="More actions"
        button={<Icon name="more" />}
        items={[
          { label: 'Edit', icon: 'settings', onSelect: show('edit') },
          { label: 'Rotate the secret', icon: 'key', onSelect: show('rotate') },
          { label: 'Delete', icon: 'trash', kind: 'danger', onSelect: show('delete') },
        ]}
      />
    </>
  );
}

function WebhookFacts({ webhook }: { webhook: WebhookInfo }) {
  const { url, types, failingSince, oldSecretUntil, createdAt } = webhook;
  const hasOldSecret = oldSecretUntil !== null && Date.parse(oldSecretUntil) > Date.now();
  return (
    <Card>
      <div class="reference">
        <code>{url}</code>
        <CopyButton text={url} label="Copy the URL" />
      </div>
      <Facts
        facts={[
          ['Events', types.length === 0 ? 'all' : types.join(', ')],
          ['Failing since', failingSince === null ? 'no failure' : <Ago at={failingSince} />],
          ['Old secret signs', hasOldSecret ? `until ${formatMoment(oldSecretUntil)}` : 'no'],
          ['Created', formatMoment(createdAt)],
        ]}
      />
    </Card>
  );
}

interface DialogProps {
  webhook: WebhookInfo;
  onClose: () => void;
  onDone: () => void;
}

function WebhookDialogs({ name, ...props }: DialogProps & { name: DialogName | undefined }) {
  if (name === 'edit') return <EditWebhook {...props} />;
  if (name === 'enable' || name === 'pause') return <SetEnabled {...props} isEnabled={name === 'enable'} />;
  if (name === 'rotate') return <RotateSecret {...props} />;
  if (name === 'test') return <SendTest {...props} />;
  if (name === 'delete') return <DeleteWebhook {...props} />;
  return null;
}

function SetEnabled({ webhook: { id }, isEnabled, onClose, onDone }: DialogProps & { isEnabled: boolean }) {
  return (
    <ActionDialog
      title={isEnabled ? 'Enable the webhook' : 'Pause the webhook'}
      verb={isEnabled ? 'Enable' : 'Pause'}
      done={isEnabled ? 'The webhook is enabled.' : 'The webhook is paused.'}
      act={() => requireClient().webhooks.update(id, { enabled: isEnabled })}
      onClose={onClose}
      onDone={onDone}
      code={updateWebhookCall(id, { enabled: isEnabled })}
    >
      <p>
        {isEnabled
          ? 'Deliveries that wait are sent now, and new events from now on.'
          : 'Events that happen while it is paused are not sent, also not later.'}
      </p>
    </ActionDialog>
  );
}

function SendTest({ webhook: { id }, onClose, onDone }: DialogProps) {
  return (
    <ActionDialog
      title="Send a test"
      verb="Send"
      done="The message is on its way."
      act={() => requireClient().webhooks.test(id)}
      onClose={onClose}
      onDone={onDone}
      code={testWebhookCall(id)}
    >
      <p>
        Sends a message of type <code>webhook.test</code>. Its delivery shows what became of it.
      </p>
    </ActionDialog>
  );
}

const OVERLAPS = [
  ['86400', 'One day'],
  ['3600', 'One hour'],
  ['604800', 'One week'],
  ['0', 'Not at all'],
] as const;

function RotateSecret({ webhook: { id }, onClose, onDone }: DialogProps) {
  const overlap = useSignal('86400');
  const secret = useSignal<string | undefined>(undefined);
  const overlapSeconds = Number(overlap.value);
  if (secret.value !== undefined)
    return (
      <ShowSecret
        secret={secret.value}
        onClose={() => {
          onClose();
          onDone();
        }}
      />
    );
  return (
    <ActionDialog
      title="Rotate the secret"
      verb="Make a new secret"
      act={async () =>
        (secret.value = (await requireClient().webhooks.rotateSecret(id, { overlapSeconds })).secret)
      }
      // The dialog with the secret takes its place.
      onClose={() => secret.value === undefined && onClose()}
      code={rotateSecretCall(id, overlapSeconds)}
    >
      <p>
        Messages are signed with a new secret at once. For the time of the overlap, the old one signs them,
        too.
      </p>
      <SelectField
        label="The old secret keeps signing"
        value={overlap.value}
        options={OVERLAPS}
        onValue={(value) => (overlap.value = value)}
      />
    </ActionDialog>
  );
}

function DeleteWebhook({ webhook: { id, url }, onClose }: DialogProps) {
  const { route } = useLocation();
  return (
    <ActionDialog
      title="Delete the webhook"
      verb="Delete webhook"
      kind="danger"
      done="The webhook is deleted."
      act={() => requireClient().webhooks.delete(id)}
      onClose={onClose}
      onDone={() => route('/webhooks')}
      code={deleteWebhookCall(id)}
    >
      <p>Nothing is sent to {url} any more. Its deliveries are deleted, too.</p>
    </ActionDialog>
  );
}

function hostOf(url: string): string {
  return URL.parse(url)?.host ?? url;
}

function Missing({ id }: { id: string }) {
  return (
    <Page title="Not found">
      <Empty
        icon="hook"
        title="There is no such webhook"
        action={
          <ButtonLink href="/webhooks" kind="primary">
            To the webhooks
          </ButtonLink>
        }
      >
        Your organization has no webhook with the id {id}. It may have been deleted.
      </Empty>
    </Page>
  );
}
