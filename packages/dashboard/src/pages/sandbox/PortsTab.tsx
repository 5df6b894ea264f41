import { useSignal } from '@preact/signals';
import type { Preview, PreviewInfo, Sandbox } from '../../../../sdk/src/index.ts';
import { useNow, useResource } from '../../service/resource.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { formatAge, formatMoment } from '../../ui/format.ts';
import { Icon } from '../../ui/Icon.tsx';
import { Card } from '../../ui/Page.tsx';
import { toLiteral, toPython } from '../../ui/snippets.ts';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { isPageUrl } from './ports/port-field.ts';
import { PreviewForm } from './ports/PreviewForm.tsx';
import { codeOf } from './sandbox-code.ts';
import type { TabProps } from './tab-props.ts';
import { WhileRunning } from './WhileRunning.tsx';
import '../../styles/ports.css';

export function PortsTab(props: TabProps) {
  return (
    <WhileRunning {...props} icon="network" subject="Its ports">
      <Ports sandbox={props.sandbox} />
    </WhileRunning>
  );
}

function Ports({ sandbox }: { sandbox: Sandbox }) {
  const { id } = sandbox.record;
  const resource = useResource((signal) => sandbox.previews({ signal }), [id]);
  // The service shows an address only once. It is a password, so it is kept only as long as this tab is shown.
  const urls = useSignal<ReadonlyMap<string, string>>(new Map());
  const created = (preview: Preview): void => {
    urls.value = new Map(urls.value).set(preview.id, preview.url);
    resource.reload();
  };
  return (
    <div class="stack">
      <PreviewForm sandbox={sandbox} onCreated={created} />
      <Card title="Links">
        <Loaded resource={resource} rows={3}>
          {(previews) => (
            <PreviewList sandbox={sandbox} previews={previews} urls={urls.value} reload={resource.reload} />
          )}
        </Loaded>
      </Card>
    </div>
  );
}

interface PreviewListProps {
  sandbox: Sandbox;
  previews: readonly PreviewInfo[];
  urls: ReadonlyMap<string, string>;
  reload: () => void;
}

function PreviewList({ sandbox, previews, urls, reload }: PreviewListProps) {
  const now = useNow();
  const revoked = useSignal<PreviewInfo | undefined>(undefined);
  const live = previews
    .filter(({ expiresAt }) => Date.parse(expiresAt) > now.value)
    .sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
  if (live.length === 0)
    return (
      <Empty icon="external" title="No links">
        A link lets anyone who has it open one port in a browser, until it expires or is revoked.
      </Empty>
    );
  return (
    <>
      <ul class="previews">
        {live.map((preview) => (
          <PreviewRow
            key={preview.id}
            preview={preview}
            url={urls.get(preview.id)}
            now={now.value}
            onRevoke={() => (revoked.value = preview)}
          />
        ))}
      </ul>
      {revoked.value !== undefined && (
        <RevokeDialog
          sandbox={sandbox}
          preview={revoked.value}
          onDone={reload}
          onClose={() => (revoked.value = undefined)}
        />
      )}
    </>
  );
}

interface PreviewRowProps {
  preview: PreviewInfo;
  url: string | undefined;
  now: number;
  onRevoke: () => void;
}

function PreviewRow({ preview: { port, createdAt, expiresAt }, url, now, onRevoke }: PreviewRowProps) {
  return (
    <li>
      <div class="preview-facts">
        <b>Port {port}</b>
        <span class="soft">
          created <Ago at={createdAt} /> ·{' '}
          <time dateTime={expiresAt} title={formatMoment(expiresAt)}>
            expires {formatAge(expiresAt, now)}
          </time>
        </span>
        {url === undefined && <span class="soft">Its address was shown when it was created.</span>}
      </div>
      {url !== undefined && (
        <div class="secret preview-url">
          <code>{url}</code>
          <CopyButton text={url} label="Copy the link" />
        </div>
      )}
      <div class="actions">
        {url !== undefined && isPageUrl(url) && (
          <a class="button primary" href={url} target="_blank" rel="noreferrer noopener">
            <Icon name="external" size={16} />
            <span>Open</span>
          </a>
        )}
        <Button kind="danger" onClick={onRevoke}>
          Revoke
        </Button>
      </div>
    </li>
  );
}

interface RevokeDialogProps {
  sandbox: Sandbox;
  preview: PreviewInfo;
  onDone: () => void;
  onClose: () => void;
}

function RevokeDialog({ sandbox, preview: { id, port }, onDone, onClose }: RevokeDialogProps) {
  return (
    <ActionDialog
      title="Revoke link"
      verb="Revoke"
      kind="danger"
      act={async () => {
        await sandbox.revokePreview(id);
        onDone();
      }}
      onClose={onClose}
      code={codeOf({
        id: sandbox.record.id,
        method: 'DELETE',
        path: `/previews/${id}`,
        typescript: `await sandbox?.revokePreview(${toLiteral(id)});`,
        python: `sandbox.revoke_preview(${toPython(id)})`,
      })}
    >
      <p>The link to port {port} stops working for everyone who has it, from the next request on.</p>
    </ActionDialog>
  );
}
