import { useSignal } from '@preact/signals';
import { useRoute } from 'preact-iso';
import type { ImageBuildInfo } from '../../../../sdk/src/index.ts';
import { requireClient } from '../../service/require-client.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import '../../styles/resources.css';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button, ButtonLink } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { formatBytes, formatMoment } from '../../ui/format.ts';
import { Card, Facts, Page } from '../../ui/Page.tsx';
import { Progress } from '../../ui/Progress.tsx';
import { Loaded } from '../../ui/states.tsx';
import { BuildLog } from './BuildLog.tsx';
import { cleanOutput } from './build-log.ts';
import { BuildDuration, BuildStatus } from './BuildStatus.tsx';
import { cancelBuildCall, getBuildCall } from './image-calls.ts';

/** `/images/builds/:id` */
export function BuildPage() {
  const { id = '' } = useRoute().params;
  const current = client.value;
  const resource = useResource(
    (signal) => (current ?? requireClient()).builds.get(id, { signal }),
    [current, id],
    { concerns: ({ type, data }) => type === 'image.build_ended' && data['build_id'] === id },
  );
  return (
    <Loaded resource={resource} rows={6}>
      {(build) => <Found build={build} reload={resource.reload} />}
    </Loaded>
  );
}

function Found({ build, reload }: { build: ImageBuildInfo; reload: () => void }) {
  const { id, name, status } = build;
  const isAsked = useSignal(false);
  return (
    <Page
      title={name}
      lead={
        <>
          <a href="/images/builds">Builds</a>
          <BuildStatus build={build} />
          <span class="mono">{id}</span>
        </>
      }
      actions={
        <>
          <CopyAsCode {...getBuildCall(id)} />
          {status === 'done' && (
            <ButtonLink href={`/sandboxes/new?image=${encodeURIComponent(name)}`} icon="plus">
              New sandbox
            </ButtonLink>
          )}
          {status === 'running' && (
            <Button kind="danger" icon="close" onClick={() => (isAsked.value = true)}>
              Cancel build
            </Button>
          )}
        </>
      }
    >
      {build.error !== null && (
        <p class="note bad pre" role="status">
          {cleanOutput(build.error.message)}
        </p>
      )}
      <BuildFacts build={build} />
      <BuildLog id={id} onStep={reload} />
      {isAsked.value && (
        <ActionDialog
          title="Cancel the build"
          verb="Cancel build"
          kind="danger"
          done="The build is cancelled."
          act={() => requireClient().builds.cancel(id)}
          onClose={() => (isAsked.value = false)}
          onDone={reload}
          code={cancelBuildCall(id)}
        >
          <p>Its sandbox is destroyed. Steps that are cached already stay.</p>
        </ActionDialog>
      )}
    </Page>
  );
}

function BuildFacts({ build }: { build: ImageBuildInfo }) {
  const { image, from, steps, stepsDone, sizeBytes, sandboxId, status } = build;
  return (
    <Card>
      {status === 'running' && <Progress label="Steps" done={stepsDone} total={steps} />}
      <Facts
        facts={[
          ['Steps', `${stepsDone} of ${steps}`],
          ['Duration', <BuildDuration build={build} />],
          ['From', <span class="mono">{from}</span>],
          ['Size', sizeBytes === null ? '–' : formatBytes(sizeBytes)],
          [
            'Sandbox',
            status === 'running' ? (
              <a class="mono small" href={`/sandboxes/${encodeURIComponent(sandboxId)}`}>
                {sandboxId}
              </a>
            ) : (
              <span class="mono small">{sandboxId}</span>
            ),
          ],
          ['Started', formatMoment(build.createdAt)],
        ]}
      />
      {image !== null && (
        <div class="reference">
          <code>{image}</code>
          <CopyButton text={image} label="Copy the reference of the image" />
        </div>
      )}
    </Card>
  );
}
