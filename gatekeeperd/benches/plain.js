// Plain Chromium by Playwright, for comparison. Each line on standard input is an address; each answer is one line of JSON
// with milliseconds. MODULES is the directory of npm packages.
const { chromium } = require(process.env.MODULES + '/playwright-core');
const now = () => Number(process.hrtime.bigint()) / 1e6;

async function once(url) {
  const begin = now();
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  const open = now() - begin;
  await page.goto(url);
  await page.screenshot();
  const first = now() - begin;
  const time = async (action) => {
    const times = [];
    for (let round = 0; round < 10; round++) {
      const begin = now();
      await action();
      times.push(now() - begin);
    }
    return times;
  };
  const screenshot = await time(() => page.screenshot());
  const click = await time(() => page.mouse.click(50, 50));
  await browser.close();
  return { open, first, screenshot, click };
}

(async () => {
  for await (const url of require('readline').createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await once(url)));
  }
})();
