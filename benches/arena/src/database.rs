//! The workloads of a database: 100,000 rows in PostgreSQL, by the client of the ecosystem. The peers in
//! `benches/peers` include this file, so the servers differ in its surroundings only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Error, NoTls, Row, Statement};

/// The table, its queries, and a cache of single items.
#[derive(Debug)]
pub struct Database {
    client: Client,
    range: Statement,
    list: Statement,
    count: Statement,
    read: Statement,
    upsert: Statement,
    update: Statement,
    cache: Mutex<HashMap<i32, (Instant, Vec<u8>)>>,
}

/// `GET /async-db`
#[derive(Debug, Deserialize)]
pub struct Range {
    #[serde(default)]
    min: i32,
    #[serde(default = "any_price")]
    max: i32,
    #[serde(default = "usual_limit")]
    limit: i64,
}

/// `GET /crud/items`
#[derive(Debug, Deserialize)]
pub struct List {
    category: String,
    #[serde(default = "first_page")]
    page: i64,
    #[serde(default = "usual_limit")]
    limit: i64,
}

/// `POST /crud/items`
#[derive(Debug, Deserialize)]
pub struct Entry {
    id: i32,
    name: String,
    category: String,
    price: i32,
    quantity: i32,
}

/// `PUT /crud/items/{id}`
#[derive(Debug, Deserialize)]
pub struct Change {
    name: String,
    price: i32,
    quantity: i32,
}

#[derive(Serialize)]
struct Item<'a> {
    id: i32,
    name: &'a str,
    category: &'a str,
    price: i32,
    quantity: i32,
    active: bool,
    tags: Vec<&'a str>,
    rating: Rating,
}

#[derive(Serialize)]
struct Rating {
    score: i32,
    count: i32,
}

#[derive(Serialize)]
struct Found<'a> {
    items: Vec<Item<'a>>,
    count: usize,
}

#[derive(Serialize)]
struct Page<'a> {
    items: Vec<Item<'a>>,
    total: i64,
    page: i64,
    limit: i64,
}

impl Database {
    /// Connects. The connection is a tokio task.
    ///
    /// # Errors
    /// If PostgreSQL cannot be reached, or refuses a statement.
    pub async fn connect(settings: &str) -> Result<Self, Error> {
        let (client, connection) = tokio_postgres::connect(settings, NoTls).await?;
        tokio::spawn(connection);
        Self::new(client).await
    }

    /// Makes the table unless it is there, and prepares the queries.
    ///
    /// # Errors
    /// If PostgreSQL refuses a statement.
    pub async fn new(client: Client) -> Result<Self, Error> {
        client.batch_execute(TABLE).await?;
        Ok(Self {
            range: client.prepare(&format!("{ITEM} WHERE price BETWEEN $1 AND $2 LIMIT $3")).await?,
            list: client.prepare(&format!("{ITEM} WHERE category = $1 ORDER BY id LIMIT $2 OFFSET $3")).await?,
            count: client.prepare("SELECT count(*) FROM items WHERE category = $1").await?,
            read: client.prepare(&format!("{ITEM} WHERE id = $1")).await?,
            upsert: client.prepare(UPSERT).await?,
            update: client.prepare("UPDATE items SET name = $2, price = $3, quantity = $4 WHERE id = $1").await?,
            cache: Mutex::default(),
            client,
        })
    }

    /// Items whose price is in a range, as JSON.
    ///
    /// # Errors
    /// If the query fails.
    pub async fn range(&self, range: &Range) -> Result<Vec<u8>, Error> {
        let limit = range.limit.clamp(1, LIMIT_MAX);
        let rows = self.client.query(&self.range, &[&range.min, &range.max, &limit]).await?;
        let items = rows.iter().map(item).collect::<Result<Vec<_>, _>>()?;
        Ok(json(&Found { count: items.len(), items }))
    }

    /// A page of the items of a category, as JSON.
    ///
    /// # Errors
    /// If a query fails.
    pub async fn list(&self, list: &List) -> Result<Vec<u8>, Error> {
        let (page, limit) = (list.page.clamp(1, i64::from(ROWS)), list.limit.clamp(1, LIMIT_MAX));
        let offset = (page - 1) * limit;
        let rows = self.client.query(&self.list, &[&list.category, &limit, &offset]).await?;
        let total = self.client.query_one(&self.count, &[&list.category]).await?;
        let items = rows.iter().map(item).collect::<Result<Vec<_>, _>>()?;
        Ok(json(&Page { items, total: total.try_get(0)?, page, limit }))
    }

    /// One item as JSON, and whether it comes from the cache of the process.
    ///
    /// # Errors
    /// If the query fails.
    pub async fn read_cached(&self, id: i32) -> Result<Option<(Vec<u8>, bool)>, Error> {
        if let Some((cached, item)) = self.cache().get(&id)
            && cached.elapsed() < CACHED_MAX
        {
            return Ok(Some((item.clone(), true)));
        }
        let Some(item) = self.read(id).await? else { return Ok(None) };
        let mut cache = self.cache();
        if cache.len() >= CACHED_ITEMS_MAX {
            cache.clear();
        }
        cache.insert(id, (Instant::now(), item.clone()));
        Ok(Some((item, false)))
    }

    /// One item as JSON.
    ///
    /// # Errors
    /// If the query fails.
    pub async fn read(&self, id: i32) -> Result<Option<Vec<u8>>, Error> {
        let row = self.client.query_opt(&self.read, &[&id]).await?;
        row.map(|row| Ok(json(&item(&row)?))).transpose()
    }

    /// Adds an item, or replaces the one of its number. Returns the number.
    ///
    /// # Errors
    /// If the statement fails.
    pub async fn upsert(&self, entry: &Entry) -> Result<i32, Error> {
        let Entry { id, name, category, price, quantity } = entry;
        self.client.execute(&self.upsert, &[id, name, category, price, quantity]).await?;
        self.cache().remove(id);
        Ok(*id)
    }

    /// Changes an item. Returns whether there is one of this number.
    ///
    /// # Errors
    /// If the statement fails.
    pub async fn update(&self, id: i32, change: &Change) -> Result<bool, Error> {
        let Change { name, price, quantity } = change;
        let rows = self.client.execute(&self.update, &[&id, name, price, quantity]).await?;
        self.cache().remove(&id);
        Ok(rows > 0)
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<i32, (Instant, Vec<u8>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn item(row: &Row) -> Result<Item<'_>, Error> {
    Ok(Item {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        category: row.try_get(2)?,
        price: row.try_get(3)?,
        quantity: row.try_get(4)?,
        active: row.try_get(5)?,
        tags: row.try_get(6)?,
        rating: Rating { score: row.try_get(7)?, count: row.try_get(8)? },
    })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these types have strings as keys only")
}

const fn any_price() -> i32 {
    i32::MAX
}

const fn usual_limit() -> i64 {
    10
}

const fn first_page() -> i64 {
    1
}

/// Items of one response.
const LIMIT_MAX: i64 = 50;
/// Rows of the table.
pub const ROWS: i32 = 100_000;
/// How long a cached item is used.
pub const CACHED_MAX: Duration = Duration::from_millis(200);
/// Items that the cache has room for.
const CACHED_ITEMS_MAX: usize = 100_000;

const ITEM: &str = "SELECT id, name, category, price, quantity, active, tags, rating_score, rating_count FROM items";

const UPSERT: &str = "INSERT INTO items (id, name, category, price, quantity) VALUES ($1, $2, $3, $4, $5) \
    ON CONFLICT (id) DO UPDATE SET name = $2, category = $3, price = $4, quantity = $5";

/// The table, once: a second connection waits for the first, and finds it there.
const TABLE: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(2026);
    CREATE TABLE IF NOT EXISTS items (
        id int4 PRIMARY KEY, name text NOT NULL, category text NOT NULL, price int4 NOT NULL, quantity int4 NOT NULL,
        active bool NOT NULL DEFAULT true, tags text[] NOT NULL DEFAULT '{}',
        rating_score int4 NOT NULL DEFAULT 0, rating_count int4 NOT NULL DEFAULT 0
    );
    INSERT INTO items
        SELECT id, 'Item ' || id, ('{deck,engine,navigation,rigging,safety}'::text[])[1 + id % 5], 1 + id * 7919 % 500,
            1 + id % 50, id % 4 > 0, ('{brass,fast,new,sale,sturdy,tested}'::text[])[1 + id % 3 : 1 + id % 5],
            id % 51, 1 + id % 400
        FROM generate_series(1, 100000) AS id WHERE NOT EXISTS (SELECT FROM items);
    CREATE INDEX IF NOT EXISTS items_price ON items (price);
    CREATE INDEX IF NOT EXISTS items_category ON items (category, id);
    ANALYZE items;
    COMMIT;";
