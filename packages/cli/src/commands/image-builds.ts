import type { Command } from 'commander';
import type { ImageBuildInfo } from '../../../sdk/src/index.ts';
import { action, addCommand, first } from '../calls/command-call.ts';
import { parseMiB, parsePair, whole } from '../calls/parse-values.ts';
import { EXIT } from '../output/failure.ts';
import { formatAge } from '../output/quantities.ts';
import type { Colour, Column } from '../output/table.ts';
import { buildFromDirectory, reasonOf } from '../images/build-image.ts';
import { BuildLogView } from '../images/build-log-view.ts';

const COLOURS: Readonly<Record<string, Colour>> = { done: 'green', cancelled: 'yellow', failed: 'red' };

const COLUMNS: readonly Column<ImageBuildInfo>[] = [
  { head: 'ID', text: ({ id }) => id },
  { head: 'NAME', text: ({ name }) => name },
  {
    head: 'STATUS',
    text: ({ status, error }) => (error === null ? status : `${status}: ${error.code}`),
    colour: ({ status }) => COLOURS[status],
  },
  { head: 'STEPS', text: ({ steps, stepsDone }) => `${stepsDone} of ${steps}` },
  { head: 'AGE', text: ({ createdAt }) => formatAge(createdAt) },
  { head: 'FROM', text: ({ from }) => from },
];

interface BuildOptions {
  file?: string;
  tag: string;
  buildArg?: Record<string, string>;
  cpus?: number;
  mem?: number;
  diskSize?: number;
  networkProfile?: string;
  cache: boolean;
  timeout?: number;
  detach?: boolean;
}

/** Adds the commands that build images and show builds. */
export function addBuildCommands(images: Command): void {
  addBuild(images);
  addListBuilds(images);
  addBuildLog(images);
  addCancel(images);
}

function addBuild(images: Command): void {
  addCommand(images, {
    syntax: 'build <directory>',
    summary: 'builds an image from a Dockerfile, in a sandbox',
    details:
      'The files of the directory are uploaded, except those that its .dockerignore names. The log goes to standard error. ' +
      'Ctrl-C cancels the build.',
    examples: [
      'coppice images build -t app:1 .',
      'coppice images build -f Dockerfile.dev -t app:dev --build-arg V=2 .',
      'id=$(coppice images build --detach -t app:1 .)',
    ],
  })
    .option('-f, --file <path>', 'the Dockerfile; by default that of the directory')
    .requiredOption(
      '-t, --tag <name>',
      'name of the image, such as app:1; sandboxes are created from built/app:1',
    )
    .option('--build-arg <key=value>', 'value of an ARG of the Dockerfile; may be repeated', parsePair)
    .option('--cpus <count>', 'virtual CPUs of the sandbox of the build', whole(1))
    .option('--mem <size>', 'memory of that sandbox, such as 2g', parseMiB)
    .option('--disk-size <size>', 'scratch disk of that sandbox', parseMiB)
    .option('--network-profile <name>', 'network profile of that sandbox')
    .option('--no-cache', 'runs all steps, also those that an earlier build has run')
    .option('--timeout <seconds>', 'the build fails after this time', whole(1))
    .option('-d, --detach', 'prints the id of the build and does not wait for its end')
    .action(
      action<BuildOptions>(async (call) => {
        const { file, tag, buildArg = {}, cpus, mem, diskSize, ...options } = call.options;
        const isDetached = options.detach === true;
        const built = await buildFromDirectory({
          client: call.connect(),
          out: call.out,
          directory: first(call),
          file,
          request: {
            name: tag,
            buildArgs: buildArg,
            vcpus: cpus,
            memMiB: mem,
            diskMiB: diskSize,
            networkProfile: options.networkProfile,
            noCache: !options.cache,
            timeout: options.timeout,
          },
          isDetached,
        });
        await call.out.result(built, isDetached ? built.id : (built.image ?? built.name));
      }),
    );
}

function addListBuilds(images: Command): void {
  addCommand(images, {
    syntax: 'builds',
    summary: 'lists the newest builds',
    examples: ['coppice images builds'],
  }).action(action(async ({ out, connect }) => out.list(await connect().builds.list(), COLUMNS)));
}

function addBuildLog(images: Command): void {
  addCommand(images, {
    syntax: 'build-log <build>',
    summary: 'shows the log of a build, up to its end',
    details:
      'It continues after lost connections, without loss or repetition. Ctrl-C ends only this view. ' +
      'If the build has failed or is cancelled, the exit code is 1.',
    examples: ['coppice images build-log build0123456789abcdef0123'],
  }).action(
    action(async (call) => {
      const view = new BuildLogView(process.stdout);
      for await (const event of call.connect().builds.follow(first(call))) {
        if (call.out.isJson) await call.out.event(event);
        else await view.show(event);
        if (event.type !== 'end') continue;
        call.out.note(describeEnd(event.build));
        if (event.build.status !== 'done') return EXIT.failed;
      }
      return 0;
    }),
  );
}

function addCancel(images: Command): void {
  addCommand(images, {
    syntax: 'cancel <build>',
    summary: 'cancels a build that runs, and waits for its end',
    examples: ['coppice images cancel build0123456789abcdef0123'],
  }).action(
    action(async (call) => {
      const build = await call.connect().builds.cancel(first(call));
      await call.out.result(build, describeEnd(build));
    }),
  );
}

function describeEnd(build: ImageBuildInfo): string {
  const about = build.image ?? reasonOf(build);
  return `build ${build.id} is ${build.status}${about === undefined ? '' : `: ${about}`}`;
}
