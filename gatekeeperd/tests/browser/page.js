// Drives the operator's page with Playwright in a real Chromium. Prints what it saw as JSON.
const { chromium } = require(process.env.MODULES + '/playwright-core');
const { BASE, TOKEN, SITE, OTHER, SHOTS } = process.env;

(async () => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, colorScheme: 'light' });
  const page = await context.newPage();
  const wrong = [], elsewhere = [];
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('console', (message) => /Content Security|Refused to/.test(message.text()) && wrong.push(message.text()));
  page.on('request', (request) => request.url().startsWith(BASE) || request.url().startsWith('data:') || elsewhere.push(request.url()));
  const shot = (name) => SHOTS ? page.screenshot({ path: `${SHOTS}/${name}.png` }) : null;
  const said = {};
  // While a page loads, the button is off, and the address changes when it has loaded.
  const go = async (url) => {
    await page.locator('.address button[type=submit]:enabled').waitFor();
    await page.getByLabel('Address').fill(url);
    await page.keyboard.press('Enter');
  };

  await page.goto(BASE + '/');
  await page.getByLabel('Token').fill('gkt_wrong');
  await page.getByRole('button', { name: 'Log in' }).click();
  said.refused = await page.getByRole('alert').textContent();
  await shot('login');
  await page.getByLabel('Token').fill(TOKEN);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Sessions', exact: true }).waitFor();
  const cookie = (await context.cookies())[0];
  said.cookie = [cookie.httpOnly, cookie.sameSite];
  said.stored = await page.evaluate(() => JSON.stringify(localStorage) + document.cookie);
  said.stored = [TOKEN, cookie.value].some((secret) => said.stored.includes(secret));

  // A session, by the keyboard.
  await page.keyboard.press('n');
  await page.getByLabel('Recording').selectOption('audit');
  await page.getByRole('button', { name: 'Open', exact: true }).click();
  await page.getByLabel('Live view').waitFor();
  await go(SITE + '/');
  await page.locator('.feed li', { hasText: 'navigate' }).first().waitFor();
  await page.waitForFunction(() => document.querySelector('.view img')?.naturalWidth > 0);
  await page.getByRole('button', { name: 'Screenshot', exact: true }).click();
  await page.locator('.film img').first().waitFor();
  await go(OTHER + '/');
  await page.getByRole('button', { name: 'Why?' }).click();
  said.why = await page.locator('.why').textContent();
  // The refused address shows the proxy's page; go back to one worth a look.
  await go(SITE + '/');
  await page.locator('.feed li', { hasText: 'navigate' }).nth(2).waitFor();
  await page.getByRole('button', { name: 'Screenshot', exact: true }).click();
  await page.locator('.film img').nth(1).waitFor();
  said.pixel = await page.evaluate(async () => {
    let pixel = [];
    // The picture of the page that was there before may still be shown, and that one is white.
    for (let tries = 0; tries < 100 && (!pixel.length || pixel[2] > 200); tries++) {
      await new Promise((done) => setTimeout(done, 100));
      const image = document.querySelector('.view img');
      const drawing = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext('2d');
      drawing.drawImage(image, 0, 0);
      pixel = [...drawing.getImageData(5, image.naturalHeight - 5, 1, 1).data].slice(0, 3);
    }
    return pixel;
  });
  if (SHOTS) await page.waitForTimeout(3500);
  await shot('sessions');
  await page.locator('.film button').first().click();
  await page.locator('dialog.wide img').waitFor();
  await page.keyboard.press('Escape');

  // Addresses and messages of pages become text, never markup.
  const markup = `<img src=x onerror="document.body.dataset.pwned='yes'">`;
  await go(`${SITE}/${markup}`);
  await page.locator('.feed li', { hasText: 'onerror' }).first().waitFor();
  await go(SITE + '/alert');
  await page.locator('#toast', { hasText: 'alert: <img src=x' }).waitFor();
  await go(SITE + '/');
  await page.locator('.feed li', { hasText: 'navigate' }).nth(5).waitFor();
  await page.locator('h1').click();

  // A grant.
  await page.keyboard.press('3');
  await page.getByRole('button', { name: 'Issue a grant' }).click();
  await page.getByLabel('Domains').fill('example.org');
  await page.getByRole('button', { name: 'Issue', exact: true }).click();
  said.grant = (await page.locator('#grant-token').textContent()).length > 20;
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByText('valid once').waitFor();
  await shot('grants');
  await page.getByRole('button', { name: 'Revoke' }).click();
  await page.getByText('No grants.').waitFor();

  // Refresh a login, with mouse and keyboard.
  await page.keyboard.press('1');
  await page.getByRole('button', { name: 'Refresh a login' }).click();
  await page.locator('.view.input').waitFor();
  await go(SITE.replace('127.0.0.1', 'localhost') + '/login');
  await page.waitForFunction(() => document.querySelector('.view img')?.naturalWidth > 0);
  await page.waitForTimeout(800);
  const box = await page.locator('.view img').boundingBox();
  const scale = await page.evaluate(() => { const i = document.querySelector('.view img'); return i.getBoundingClientRect().width / i.naturalWidth; });
  await page.mouse.click(box.x + 150 * scale, box.y + 120 * scale);
  await page.keyboard.type('Ada', { delay: 30 });
  await page.keyboard.press('Enter');
  await page.waitForTimeout(SHOTS ? 300 : 0);
  await shot('refresh');
  await page.getByLabel('Domains whose cookies to store').fill('localhost');
  // The site may still be setting its cookie; until then there is nothing to store.
  const ended = page.getByText('This session has ended');
  for (let tries = 0; tries < 30 && !(await ended.isVisible()); tries++) {
    await page.getByRole('button', { name: 'Store cookies and close' }).click({ timeout: 5000 }).catch(() => {});
    await ended.waitFor({ timeout: 2000 }).catch(() => {});
  }
  await ended.waitFor();
  await page.getByRole('link', { name: 'Credentials' }).click();
  said.credential = await page.locator('tbody tr').textContent();
  await shot('credentials');

  // The audit, filtered.
  await page.keyboard.press('2');
  await page.getByLabel('Action').fill('navigate');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.waitForFunction(() => [...document.querySelectorAll('tbody tr strong')].every((cell) => cell.textContent === 'navigate'));
  said.navigations = await page.locator('tbody tr').count();
  said.audit = await page.locator('tbody').textContent();
  await page.getByLabel('Action').fill('');
  await page.getByRole('button', { name: 'Filter' }).click();
  await shot('audit');

  // Dark, and as wide as a phone: nothing is wider than the screen.
  await page.keyboard.press('Escape');
  await page.locator('h1').click();
  await page.keyboard.press('t');
  await page.keyboard.press('1');
  await page.locator('.item').first().waitFor();
  await page.locator('.item').first().click();
  if (SHOTS) await page.waitForTimeout(1500);
  await shot('dark');
  await page.setViewportSize({ width: 390, height: 844 });
  said.wide = [];
  for (const section of ['sessions', 'audit', 'grants', 'credentials']) {
    await page.goto(BASE + '/#' + section);
    await page.waitForTimeout(250);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    if (width > 390) said.wide.push(`${section} ${width}`);
    if (section === 'sessions') await page.locator('.item').first().click();
    if (section === 'sessions' && SHOTS) await page.waitForTimeout(1500), await shot('phone');
  }
  said.pwned = await page.evaluate(() => document.body.dataset.pwned || 'no');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  said.after = (await page.request.get(BASE + '/v1/sessions')).status();
  console.log(JSON.stringify({ ...said, wrong, elsewhere }));
  await browser.close();
})().catch((error) => { console.error(error); process.exit(1); });
